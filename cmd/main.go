// The manager with the registry drivers of this repository. To add one of your own, copy this file: see package app.
package main

import (
	"github.com/rollcall-dev/rollcall/cmd/app"
	httpregistry "github.com/rollcall-dev/rollcall/internal/drivers/http"
	"github.com/rollcall-dev/rollcall/internal/drivers/memory"
)

// version is set by the linker, see the Makefile.
var version = "unknown"

func main() {
	app.Main(
		app.WithVersion(version),
		app.WithRegistry("memory", memory.New),
		app.WithRegistry("http", httpregistry.New),
	)
}
