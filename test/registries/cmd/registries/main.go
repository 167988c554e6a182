// Command registries gets the servers that the drivers are proven against, and tells what their tests came to.
//
//	go run ./test/registries/cmd/registries get [driver...]
//	go run ./test/registries/cmd/registries report results.json [driver...]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

const usage = `
Usage:
  registries get [driver...]                    get the servers that are not in the cache yet
  registries report results.json [driver...]    print a line for each driver, and for the move from one to another
                                                where it is all, from what go test -json wrote`

// migration is the folder of the tests that move pods from one registry to another, and the last line of a table of all.
const migration = "migration"

// driver is one whose tests are in test/registries/<name>.
type driver struct {
	name string
	get  func(ctx context.Context, log io.Writer) error
}

// drivers are in the order of the table.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "registries:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) > 0 && args[0] == "get":
		chosen, err := choose(args[1:])
		if err != nil {
			return err
		}
		return get(ctx, os.Stderr, chosen)
	case len(args) > 1 && args[0] == "report":
		rows, err := rows(args[2:])
		if err != nil {
			return err
		}
		return report(os.Stdout, args[1], rows, registries.Required())
	default:
		return errors.New("say what to do" + usage)
	}
}

// choose returns the drivers of these names, in the order of the table; without any it is all.
func choose(wanted []string) ([]driver, error) {
	all := drivers()
	if len(wanted) == 0 {
		return all, nil
	}
	for _, name := range wanted {
		if !slices.Contains(names(all), name) {
			return nil, fmt.Errorf("there is no driver %q: choose from %s", name, strings.Join(names(all), ", "))
		}
	}
	return slices.DeleteFunc(all, func(d driver) bool { return !slices.Contains(wanted, d.name) }), nil
}

// rows are those of the table: each driver of these names, or all, and then the move from one to another.
func rows(wanted []string) ([]string, error) {
	chosen, err := choose(wanted)
	if err != nil {
		return nil, err
	}
	if len(wanted) > 0 {
		return names(chosen), nil
	}
	return append(names(chosen), migration), nil
}

func names(of []driver) []string {
	var names []string
	for _, d := range of {
		names = append(names, d.name)
	}
	return names
}

// get gets all that can be had, and returns what is wrong with the others.
func get(ctx context.Context, log io.Writer, wanted []driver) error {
	var failed []error
	for _, d := range wanted {
		err := d.get(ctx, log)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("the server of %s can't be had: %w", d.name, err))
			continue
		}
		_, _ = fmt.Fprintf(log, "registries: the server of %s is here\n", d.name)
	}
	return errors.Join(failed...)
}
