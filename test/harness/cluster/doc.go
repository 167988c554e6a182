// Package cluster starts a real Kubernetes control plane with OpenKruise on loopback, without a container engine and
// without root: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, the OpenKruise manager with its webhooks,
// and KWOK, whose stages play the kubelet.
//
// A test package starts one cluster in TestMain and stops it there:
//
//	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stderr})
//	if err != nil { … }
//	defer c.Stop()
//	k8s, err := client.New(c.Config(), client.Options{})
//
// # Servers
//
// Every server is built from the Go module pinned in servers/<name> or servers/<name>-<version> (etcd's is in
// harness/registries/servers), once, into $XDG_CACHE_HOME/rollcall/servers (~/.cache if that is not set). KUBERNETES=1.34 or
// KRUISE=1.7 in the environment chooses a version; the default is the newest. A cold build takes minutes, and reports its progress.
//
// # Pods
//
// Pods have no containers. KWOK gives them what a kubelet would write into their status:
//
//   - A pod bound to a node gets an address of Options.PodCIDR (loopback addresses, which any process of this machine can
//     listen on), runs, and then is ready, unless a readiness gate of it is not "True". Gates are evaluated again at
//     every change.
//   - A changed image restarts the container: at once it is not ready and waits, then it runs with restartCount + 1 and a
//     new imageID, then it is ready.
//   - A pod that is being deleted stops at once (not ready, Succeeded), and then goes, as soon as no finalizer holds it.
//   - Both ways, a preStop sleep keeps the containers running for its time first.
//
// The annotations AnnotationStartDelay and AnnotationReadyDelay on a pod change how long it takes. Package podserver
// answers HTTP on the address of every pod whose containers run.
package cluster
