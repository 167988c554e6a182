// Command registries gets the servers that the drivers are proven against, and tells what their tests came to.
//
//	go run ./test/registries/cmd/registries get [driver...]
//	go run ./test/registries/cmd/registries report results.json
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

const usage = `
Usage:
  registries get [driver...]        get the servers that are not in the cache yet
  registries report results.json    print a line for each driver from what go test -json wrote`

// driver is one whose tests are in test/registries/<name>.
type driver struct {
	name string
	get  func(ctx context.Context, log io.Writer) error
}

func drivers() []driver {
	return []driver{
		{"consul", only(consul.Get)},
		{"etcd", only(etcd.Get)},
		{"eureka", only(eureka.Get)},
		{"nacos", only(nacos.Get)},
		{"zookeeper", only(zookeeper.Get)},
	}
}

// only drops what a Get returns besides its error.
func only[T any](get func(context.Context, io.Writer) (T, error)) func(context.Context, io.Writer) error {
	return func(ctx context.Context, log io.Writer) error {
		_, err := get(ctx, log)
		return err
	}
}

func main() {
	os.Exit(command.Run("registries", func(ctx context.Context) error { return run(ctx, os.Args[1:]) }))
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "get":
		chosen, err := choose(args[1:])
		if err != nil {
			return err
		}
		return get(ctx, os.Stdout, os.Stderr, chosen)
	case len(args) == 2 && args[0] == "report":
		return report(os.Stdout, args[1])
	default:
		return errors.New("say what to do" + usage)
	}
}

// choose returns the drivers of these names; without any it is all.
func choose(wanted []string) ([]driver, error) {
	all := drivers()
	var names []string
	for _, d := range all {
		names = append(names, d.name)
	}
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no driver %q: choose from %s", name, strings.Join(names, ", "))
		}
	}
	if len(wanted) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(d driver) bool { return !slices.Contains(wanted, d.name) }), nil
}

// get gets all that can be had, and returns what is wrong with the others. What this machine can't run is none of that unless
// servers are required: a line in lacks for each.
func get(ctx context.Context, lacks, log io.Writer, wanted []driver) error {
	var failed []error
	for _, d := range wanted {
		err := d.get(ctx, log)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			_, _ = fmt.Fprintf(log, "registries: the server of %s is here\n", d.name)
		case registries.IsMissing(err) && !registries.Required():
			_, _ = fmt.Fprintf(lacks, "no server of %s: %v\n", d.name, err)
		default:
			failed = append(failed, fmt.Errorf("the server of %s can't be had: %w", d.name, err))
		}
	}
	return errors.Join(failed...)
}
