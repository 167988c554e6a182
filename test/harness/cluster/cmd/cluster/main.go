// Command cluster builds the servers of the test cluster, and runs one in the foreground.
//
//	go run ./test/harness/cluster/cmd/cluster build
//	go run ./test/harness/cluster/cmd/cluster up
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/command"
)

const usage = `
Usage:
  cluster build         build the servers that are not in the cache yet
  cluster up [flags]    start a cluster, print its KUBECONFIG, stop it at Ctrl-C`

func main() {
	os.Exit(command.Run("cluster", func(ctx context.Context) error { return run(ctx, os.Args[1:]) }))
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do" + usage)
	}
	switch args[0] {
	case "build":
		return cluster.Build(ctx, os.Stderr)
	case "up":
		return up(ctx, args[1:])
	default:
		return fmt.Errorf("unknown command %q%s", args[0], usage)
	}
}

func up(ctx context.Context, args []string) error {
	opts := cluster.Options{Log: os.Stderr}
	flags := flag.NewFlagSet("cluster up", flag.ContinueOnError)
	flags.StringVar(&opts.Dir, "dir", "", "folder for data and logs, kept afterwards (default: a temporary one)")
	flags.IntVar(&opts.Nodes, "nodes", cluster.DefaultNodes, "number of nodes")
	flags.StringVar(&opts.PodCIDR, "pod-cidr", cluster.DefaultPodCIDR, "range of the pods' addresses")
	flags.BoolVar(&opts.WithoutKruise, "without-kruise", false, "leave OpenKruise out")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("up takes no arguments, only flags: %q", flags.Args())
	}
	c, err := cluster.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer c.Stop()
	fmt.Printf("export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Fprintln(os.Stderr, "cluster: running; Ctrl-C stops it")
	select {
	case <-ctx.Done():
		return nil
	case <-c.Done():
		return c.Err()
	}
}
