package driverkit

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
)

// Batch makes the changes of a call of [registry.Batcher], and returns their errors as its Batch does, finished by
// [CallError]. It calls prepare for each change that passes [registry.Change.Check], in their order: prepare checks the instance,
// and returns what the batch needs of the change or why it can't be made. What prepare returned without an error goes to
// send, all at once, which returns an error for each, in their order. Where there is none, send is not called.
func Batch[T any](
	ctx context.Context, changes []registry.Change, prepare func(registry.Change) (T, error), send func(ready []T) []error,
) []error {
	errs := make([]error, len(changes))
	var ready []T
	var at []int // of these
	for i, c := range changes {
		if errs[i] = c.Check(); errs[i] != nil {
			continue
		}
		prepared, err := prepare(c)
		if err != nil {
			errs[i] = changeError(ctx, c, err)
			continue
		}
		ready, at = append(ready, prepared), append(at, i)
	}
	if len(ready) == 0 {
		return errs
	}
	for i, err := range send(ready) {
		errs[at[i]] = changeError(ctx, changes[at[i]], err)
	}
	return errs
}
