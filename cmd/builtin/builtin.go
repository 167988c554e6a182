// Package builtin holds the registry drivers of this repository, for a manager that has one more: its main passes them on
// with its own, see package app.
package builtin

import (
	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/internal/drivers"
)

// Registries adds every driver of this repository under the name that its page in docs/drivers has.
func Registries() []app.Option {
	var options []app.Option
	for name, constructor := range drivers.All() {
		options = append(options, app.WithRegistry(name, constructor))
	}
	return options
}
