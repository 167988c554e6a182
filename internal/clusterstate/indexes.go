package clusterstate

import (
	"hash/crc32"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	ownerIndex   = "owner"
	addressIndex = "address"
	nodeIndex    = "node"
)

// PodIndexes are those that the cache of pods needs for [OwnedBy], [OnNode] and [AnotherHas].
func PodIndexes() map[string]client.IndexerFunc {
	return map[string]client.IndexerFunc{ownerIndex: ownerUID, addressIndex: addressBucket, nodeIndex: nodeName}
}

// OwnedBy chooses the pods of the workload with the UID.
func OwnedBy(uid types.UID) client.MatchingFields {
	return client.MatchingFields{ownerIndex: string(uid)}
}

// OnNode chooses the pods that run on the node.
func OnNode(name string) client.MatchingFields { return client.MatchingFields{nodeIndex: name} }

// mayBeAt chooses the pods that may have the address: those in the same bucket. A place in the index for each address would take
// a tenth of the cache.
func mayBeAt(address string) client.MatchingFields {
	return client.MatchingFields{addressIndex: bucketOf(address)}
}

func ownerUID(object client.Object) []string {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

func addressBucket(object client.Object) []string {
	if address, _ := placeOf(object); address != "" {
		return []string{bucketOf(address)}
	}
	return nil
}

func nodeName(object client.Object) []string {
	if _, node := placeOf(object); node != "" {
		return []string{node}
	}
	return nil
}

// placeOf returns where a pod is. An index is given what the cache keeps.
func placeOf(object client.Object) (address, node string) {
	switch pod := object.(type) {
	case *packed:
		return pod.address, pod.node
	case *corev1.Pod:
		return pod.Status.PodIP, pod.Spec.NodeName
	}
	return "", ""
}

func bucketOf(address string) string {
	const buckets = 256
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(address))%buckets), 10)
}
