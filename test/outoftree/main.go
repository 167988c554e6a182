// A manager of another module: with the drivers of Rollcall, and one of its own. This is all that it takes.
package main

import (
	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"

	"example.com/toy/toy"
)

func main() {
	app.Main(append(builtin.Registries(), app.WithRegistry("toy", toy.New))...)
}
