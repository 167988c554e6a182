package consul

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// maxOps is how many operations a transaction may have from Consul 1.14 on (hashicorp/consul#14599); it was 64 before.
	maxOps = 128
	// opsPerChange are those of a registration, besides that of its node, which the transaction has once for each.
	opsPerChange = 2
	batchLimit   = (maxOps - nodeCount) / opsPerChange
	// maxRounds bounds how often a change whose condition failed looks again. Each failure means that somebody else's
	// change of the same entry was made, so one that needs more than two is rare.
	maxRounds = 6
)

// BatchLimit implements [registry.Batcher].
func (r *Registry) BatchLimit() int { return batchLimit }

// Batch implements [registry.Batcher] with one transaction, before which it reads the entries that it may only change
// under a condition.
func (r *Registry) Batch(ctx context.Context, changes []registry.Change) []error {
	missesEnterprise := sync.OnceValue(func() error { return r.needsEnterprise(ctx) })
	return driverkit.Batch(ctx, changes, func(c registry.Change) (registry.Change, error) {
		err := checkInstance(c.Instance)
		r.names.note(c.Instance.Service)
		if err == nil && c.State == registry.InService {
			err = cmp.Or(driverkit.CheckPrintable(c.Instance), missesEnterprise())
		}
		return c, err
	}, func(sound []registry.Change) []error {
		errs := r.makeAll(ctx, sound)
		for i, err := range errs {
			errs[i] = apart(err, len(sound))
		}
		return errs
	})
}

// needsEnterprise returns an error if the options choose a namespace or partition and Consul has none. The Community Edition refuses
// those in a read alone: a transaction registers the pod among those of all namespaces.
func (r *Registry) needsEnterprise(ctx context.Context) error {
	if r.opts.Namespace == "" && r.opts.Partition == "" || r.enterprise.Load() {
		return nil
	}
	_, err := r.outOfService(ctx)
	if err == nil {
		r.enterprise.Store(true)
	}
	return err
}

// apart marks the errors for which a batch of several is the reason, or which a call by itself will not have.
func apart(err error, size int) error {
	if size > 1 && (errors.Is(err, errStale) || driverkit.HasStatus(err, http.StatusRequestEntityTooLarge)) {
		return registry.NotApplied(errors.New(err.Error())) // without its class
	}
	return err
}

// makeAll makes sound changes, at least one.
func (r *Registry) makeAll(ctx context.Context, changes []registry.Change) []error {
	var errs []error
	for range maxRounds {
		held, err := r.lookUp(ctx, changes)
		if err != nil {
			return slices.Repeat([]error{err}, len(changes))
		}
		t := r.plan(changes, held)
		r.commit(ctx, t)
		errs = t.errs
		if !slices.Contains(errs, errStale) {
			r.tidyAfter(ctx, t)
			break
		}
	}
	return errs
}

// transaction is what is to be done for some changes.
type transaction struct {
	ops []operation
	// of holds the changes that each operation is for, by their index.
	of [][]int
	// errs are the changes' errors, by their index.
	errs []error
	// gone are the IDs of the services that are absent afterwards, by the number of their node.
	gone map[int][]string
}

func (t *transaction) add(changes []int, ops ...operation) {
	t.ops = append(t.ops, ops...)
	for range ops {
		t.of = append(t.of, changes)
	}
}

// blame gives the error to the changes of an operation.
func (t *transaction) blame(op int, err error) {
	if op < 0 || op >= len(t.of) {
		t.blameAll(err)
		return
	}
	for _, change := range t.of[op] {
		t.errs[change] = err
	}
}

// blameAll gives the error to all changes that have an operation.
func (t *transaction) blameAll(err error) {
	for op := range t.of {
		t.blame(op, err)
	}
}

// plan decides for each change what is to be done, given the entries that there are. A nil one may not be read.
func (r *Registry) plan(changes []registry.Change, held map[string]*service) *transaction {
	t := &transaction{errs: make([]error, len(changes)), gone: map[int][]string{}}
	r.planNodes(t, changes)
	for i, c := range changes {
		id := serviceID(c.Instance)
		number := nodeNumber(c.Instance.Address)
		entry, known := held[key(id)]
		removes := c.State == registry.Absent || c.State == registry.OutOfService && r.opts.OutOfRotation == outDelete
		switch {
		case c.State == registry.InService:
			t.add([]int{i}, r.serviceOp(set, c.Instance, 0), r.checkOp(set, c.Instance, statusPassing, "In rotation"))
		case !known && removes:
			t.gone[number] = append(t.gone[number], id)
		case !known: // nothing to take out
		case entry == nil:
			t.errs[i] = notAllowed(errHidden)
		case entry.Meta[registry.MetaUID] == "":
			t.errs[i] = registry.ForeignEntry(errors.New("the entry at its ID was written by another"))
		case !c.Instance.OwnsMeta(entry.Meta):
		case !removes:
			t.add([]int{i}, r.serviceOp(cas, c.Instance, entry.ModifyIndex),
				r.checkOp(set, c.Instance, statusCritical, "Out of rotation"))
		default:
			t.add([]int{i}, r.serviceOp(deleteCAS, c.Instance, entry.ModifyIndex))
			t.gone[number] = append(t.gone[number], id)
		}
	}
	return t
}

// planNodes makes sure of the nodes under which something is registered.
func (r *Registry) planNodes(t *transaction, changes []registry.Change) {
	registered := map[int][]int{}
	for i, c := range changes {
		if c.State == registry.InService {
			number := nodeNumber(c.Instance.Address)
			registered[number] = append(registered[number], i)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(registered)) {
		t.add(registered[number], nodeOp(set, r.nodes[number]))
	}
}

// commit makes the transaction and sets the changes' errors: errStale for those that have to look again.
func (r *Registry) commit(ctx context.Context, t *transaction) {
	if len(t.ops) == 0 {
		return
	}
	response, err := r.transact(ctx, t.ops)
	if err == nil && t.ops[0].Node != nil && len(response.Errors)+len(response.Results) == 0 {
		err = errors.New("the answer to a transaction is empty") // what was set is repeated in it
	}
	switch {
	case err != nil:
		t.blameAll(err)
		return
	case len(response.Errors) > 0:
		t.blameAll(registry.NotApplied(errRolledBack))
	}
	for _, e := range response.Errors {
		t.blame(e.OpIndex, r.refusedOperation(e))
	}
}

// lookUp reads the services that are there among those which a change may touch only if they are the pod's own. One that
// the token may not read is nil.
func (r *Registry) lookUp(ctx context.Context, changes []registry.Change) (map[string]*service, error) {
	held := map[string]*service{}
	var ops []operation
	for _, c := range changes {
		if c.State != registry.InService {
			ops = append(ops, r.serviceOp(get, c.Instance, 0))
			held[key(serviceID(c.Instance))] = nil
		}
	}
	// A transaction that asks for what is not there is answered with nothing but what that is.
	for len(ops) > 0 {
		response, err := r.transact(ctx, ops)
		if err != nil {
			return nil, err
		}
		if len(response.Errors) == 0 {
			for _, result := range response.Results {
				if result.Service != nil {
					held[key(result.Service.ID)] = result.Service
				}
			}
			break
		}
		absent, err := r.absent(ops, response.Errors)
		if err != nil {
			return nil, err
		}
		for id := range absent {
			delete(held, key(id))
		}
		ops = slices.DeleteFunc(ops, func(op operation) bool { return absent[op.Service.Service.ID] })
	}
	return held, nil
}

// absent returns the IDs of the services that are not there.
func (r *Registry) absent(ops []operation, errs []operationError) (map[string]bool, error) {
	absent := map[string]bool{}
	for _, e := range errs {
		if !e.isNotThere() || e.OpIndex < 0 || e.OpIndex >= len(ops) {
			return nil, r.refusedOperation(e)
		}
		absent[ops[e.OpIndex].Service.Service.ID] = true
	}
	return absent, nil
}

// key is how Consul compares IDs.
func key(id string) string { return strings.ToLower(id) }
