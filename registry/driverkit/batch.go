package driverkit

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
)

// PrepareChanges begins a batch: it calls prepare for each change that passes [registry.Change.Check]. prepare checks the
// instance, and returns what the batch needs of the change or why it can't be made. ready is what prepare returned without an
// error, and at has, for each of these, the index of its change. errs has an error for each change, as [registry.Batcher.Batch]
// returns them: that of the check, that of prepare finished by [ChangeError], or nil for what is ready.
func PrepareChanges[T any](
	ctx context.Context, changes []registry.Change, prepare func(registry.Change) (T, error),
) (ready []T, at []int, errs []error) {
	errs = make([]error, len(changes))
	for i, c := range changes {
		if errs[i] = c.Check(); errs[i] != nil {
			continue
		}
		prepared, err := prepare(c)
		if err != nil {
			errs[i] = ChangeError(ctx, c, err)
			continue
		}
		ready, at = append(ready, prepared), append(at, i)
	}
	return ready, at, errs
}
