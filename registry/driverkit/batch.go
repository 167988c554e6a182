package driverkit

import (
	"context"
	"errors"

	"github.com/rollcall-dev/rollcall/registry"
)

// errNoOutcome is the error of a change for which send returned nothing.
var errNoOutcome = errors.New("the driver returned no outcome for a change in a batch")

// Batch makes the changes of a call of [registry.Batcher], and returns their errors as its Batch does, finished by
// [CallError]. It calls prepare for each change that passes [registry.Change.Check], in their order: prepare checks the instance,
// and returns what the batch needs of the change or why it can't be made. What prepare returned without an error goes to
// send, all together, which returns an error for each, in their order: a change for which it returns nothing has failed. If nothing
// is ready, send is not called.
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
	outcomes := send(ready)
	for i, of := range at {
		err := errNoOutcome
		if i < len(outcomes) {
			err = outcomes[i]
		}
		errs[of] = changeError(ctx, changes[of], err)
	}
	return errs
}
