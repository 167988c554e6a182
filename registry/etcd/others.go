package etcd

import (
	"context"
	"slices"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// mostOfOne bounds how many keys of others one request reads for an instance: one that is there is enough.
	mostOfOne = 50
	// goneAtMost is how many keys of a service may be remembered that are not there any more, in addition to as many as there were.
	goneAtMost = 1000
)

// others knows where entries are that this driver does not change, so that Get neither reads all of a service nor misses one that has just
// been written. A list or a question reads all once. From then on, a question is for what was written since that revision: etcd looks for
// it, and sends nothing else. What was removed does not show there, so Get reads the keys at the instance's address again.
type others struct {
	asking driverkit.Shared[struct{}]

	mu sync.Mutex
	// server and term identify the etcd whose revisions these are: one that has lost its data counts from the beginning.
	server, term uint64
	// listed is the revision of the last list, which covers the folders that folders lacks. 0 before any.
	listed  int64
	folders map[string]*known
}

// known is what is known of a service's folder.
type known struct {
	revision int64
	// at are the keys by the endpoint that clients are given by them.
	at map[string][]string
	// keys are how many there are in at, and whole how many there were when all was read.
	keys, whole int
}

func (k *known) add(endpoint, key string) {
	if slices.Contains(k.at[endpoint], key) {
		return
	}
	if k.at == nil {
		k.at = map[string][]string{}
	}
	k.at[endpoint] = append(k.at[endpoint], key)
	k.keys++
}

// note adds what clients are given by a key.
func (k *known) note(entries []registry.Entry, key string) {
	for _, e := range entries {
		k.add(e.Endpoint(), key)
	}
}

// since returns the revision up to which the folder is known; 0 if all of it must be read.
func (o *others) since(folder string) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.folders[folder]
	switch {
	case k == nil:
		return o.listed
	case k.keys > 2*k.whole+goneAtMost:
		return 0
	}
	return k.revision
}

// continues reports whether an answer is later than what is known, and of the same etcd: else revisions mean nothing.
func (o *others) continues(answer *pb.ResponseHeader, since int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isOf(answer) && answer.GetRevision() >= since
}

func (o *others) isOf(answer *pb.ResponseHeader) bool {
	return answer.GetClusterId() == o.server && answer.GetRaftTerm() >= o.term
}

// become forgets what is known of another etcd.
func (o *others) become(answer *pb.ResponseHeader) {
	if !o.isOf(answer) || o.folders == nil {
		o.server, o.listed, o.folders = answer.GetClusterId(), 0, map[string]*known{}
	}
	o.term = answer.GetRaftTerm()
}

// learn takes over what was found in a folder since a revision, or in all of it.
func (o *others) learn(folder string, since int64, found *known, answer *pb.ResponseHeader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.become(answer)
	k := o.folders[folder]
	if k == nil || since == 0 && k.revision <= answer.GetRevision() {
		k = &known{whole: found.keys}
		o.folders[folder] = k
	}
	for endpoint, keys := range found.at {
		for _, key := range keys {
			k.add(endpoint, key)
		}
	}
	k.revision = max(k.revision, answer.GetRevision())
}

// learnAll takes over what a list has found, by the folder. What is known of a later revision stays.
func (o *others) learnAll(found map[string]*known, answer *pb.ResponseHeader) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.become(answer)
	for _, k := range found {
		k.revision, k.whole = answer.GetRevision(), k.keys
	}
	for folder, k := range o.folders {
		if k.revision > answer.GetRevision() {
			found[folder] = k
		}
	}
	o.folders, o.listed = found, answer.GetRevision()
}

// keysOf returns the keys at which others may have an entry for the instance.
func (o *others) keysOf(folder string, in registry.Instance) []string {
	at := driverkit.Foreign(in.Service, in.Address, in.Port)
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.folders[folder]; k != nil {
		keys := k.at[at.Endpoint()]
		return slices.Clone(keys[:min(len(keys), mostOfOne)])
	}
	return nil
}

// keysOfOthers returns the keys at which others may have an entry for the instance, those of now included.
func (r *Registry) keysOfOthers(ctx context.Context, in registry.Instance) ([]string, error) {
	folder := r.target.folder(in)
	_, err := r.others.asking.Ask(ctx, folder, func(ctx context.Context) (none struct{}, _ error) {
		return none, r.askForOthers(ctx, folder)
	})
	return r.others.keysOf(folder, in), err //nolint:wrapcheck // it is the driver's own
}

func (r *Registry) askForOthers(ctx context.Context, folder string) error {
	since := r.others.since(folder)
	found, answer, err := r.foundSince(ctx, folder, since)
	if err == nil && since > 0 && !r.others.continues(answer, since) {
		since = 0
		found, answer, err = r.foundSince(ctx, folder, since)
	}
	if err == nil {
		r.others.learn(folder, since, found, answer)
	}
	return err
}

// foundSince reads what was written into a folder after a revision.
func (r *Registry) foundSince(ctx context.Context, folder string, since int64) (*known, *pb.ResponseHeader, error) {
	found := &known{}
	answer, err := r.each(ctx, span{folder, since}, func() { *found = known{} }, func(kv *mvccpb.KeyValue) {
		found.note(r.target.foreignToAny(kv), string(kv.GetKey()))
	})
	return found, answer, err
}
