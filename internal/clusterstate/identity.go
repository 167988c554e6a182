package clusterstate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// identityTimeout is short, since a list waits for Learn.
const identityTimeout = 5 * time.Second

// Identity is the UID of namespace kube-system: new in a rebuilt cluster, kept in a restored one. A nil Identity is unknown. It is safe
// for concurrent use.
type Identity struct {
	server  client.Reader
	logger  logr.Logger
	uid     atomic.Pointer[string]
	refused atomic.Bool
}

// NewIdentity returns an unknown Identity; see [Identity.Learn].
func NewIdentity(server client.Reader, logger logr.Logger) *Identity {
	return &Identity{server: server, logger: logger}
}

// UID is empty if unknown. Once known, it never changes.
func (i *Identity) UID() string {
	if i == nil {
		return ""
	}
	if uid := i.uid.Load(); uid != nil {
		return *uid
	}
	return ""
}

// Learn asks the API server while the UID is unknown, and returns it.
func (i *Identity) Learn(ctx context.Context) string {
	if i == nil || i.UID() != "" {
		return i.UID()
	}
	uid, err := ReadUID(ctx, i.server)
	if err != nil {
		if ctx.Err() == nil && !i.refused.Swap(true) {
			i.logger.Error(err, "failed to read the UID of this cluster: this cluster can't be told from another one with the same name in "+
				"the configuration, so removals of entries that carry a cluster's UID wait for a person's approval: grant Rollcall the right to "+
				"get the namespace kube-system")
		}
		return ""
	}
	if uid != "" && i.uid.CompareAndSwap(nil, &uid) {
		i.logger.Info("cluster identified", "clusterUID", uid)
	}
	return uid
}

// ReadUID asks the API server for the UID of namespace kube-system.
func ReadUID(ctx context.Context, server client.Reader) (string, error) {
	asked, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	system := NamespaceMetadata()
	err := server.Get(asked, client.ObjectKey{Name: metav1.NamespaceSystem}, system)
	return string(system.UID), err //nolint:wrapcheck // the caller does
}
