// The manager with the registry drivers of this repository. To add one of your own, copy this file: see package app.
package main

import (
	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"
)

// version is set by the linker, see the Makefile.
var version = "unknown"

func main() {
	app.Main(append(builtin.Registries(), app.WithVersion(version))...)
}
