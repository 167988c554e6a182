// Command ready builds what a target of the Makefile needs, and tells before what that and the target take:
//
//	bin/ready demo
//
// pin writes the checksums of what can be downloaded instead. It imports little, so that it is compiled within seconds where Go's
// cache is empty. Flags that follow are those of go for what the target compiles itself.
package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// target is what one of the Makefile needs.
type target struct {
	// takes is how long it runs when everything is built.
	takes string
	// program is the main package, or all that the tests are; packages is about how many it has. binary is where it is built,
	// empty where the target does that itself.
	program, binary string
	packages        int
	// alone: it needs no cluster, or finds out itself.
	alone bool
	// registries are those whose servers are Go modules, upgraded where there are several versions, and others what not every cluster has.
	registries []string
	upgrades   bool
	others     []string
}

// targets are those that need something. Registry is the one that the user has chosen, and keep that the demo is to be tried by hand.
func targets(registry string, keep bool) map[string]target {
	var chosen []string
	switch registry {
	case registries.Consul, registries.Etcd:
		chosen = []string{registry}
	case "nacos":
		chosen = []string{registries.NacosReader}
	}
	demo := target{takes: "about 4 minutes", program: "./test/demo", binary: "bin/demo", packages: 1000, registries: chosen}
	if keep {
		demo.others = []string{servers.Kubectl}
	}
	chaos := target{program: "./test/chaos", binary: "bin/chaos", packages: 1000, registries: chosen, upgrades: true}
	return map[string]target{
		"servers": {},
		"demo":    demo,
		"adopt":   demo,
		"bench":   {takes: "40 minutes, or 10 with BENCH=short", program: "./test/bench", binary: "bin/bench/bench", packages: 1050},
		"chaos":   chaos,
		"soak":    chaos,
		"e2e":     {program: "./test/e2e", binary: "bin/e2e/e2e", packages: 1000, alone: true},
		"test": {
			takes: "about 13 minutes", program: "./...", packages: 1500,
			// Only clusters of servers are upgraded, and they usually require root.
			registries: []string{registries.Consul, registries.Etcd}, upgrades: os.Geteuid() == 0,
			others: []string{servers.Kubectl, servers.Helm, servers.Rollouts},
		},
	}
}

func main() {
	name := strings.Join(os.Args[1:min(2, len(os.Args))], "")
	os.Exit(command.Run(name, func(ctx context.Context) error {
		if name == "pin" {
			return servers.Pin(ctx, os.Stdout)
		}
		all := targets(os.Getenv("REGISTRY"), os.Getenv("KEEP") == "1")
		t, known := all[name]
		if !known {
			return fmt.Errorf("%q needs nothing: choose from %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
		return t.get(ctx, cache.NewProgress(os.Stdout, name), os.Args[2:])
	}))
}

func (t target) get(ctx context.Context, log *cache.Progress, flags []string) error {
	modules, err := t.modules(ctx)
	if err != nil {
		return err
	}
	plan, err := cache.NewPlan(ctx, modules...)
	if err != nil {
		return err
	}
	if t.program != "" {
		if err := plan.AddProgram(ctx, cmp.Or(t.binary, "the tests"), t.packages, append(flags, t.program)...); err != nil {
			return err
		}
	}
	if len(plan.Downloads) > 0 {
		log.Printf("downloads these first, once: %s (ROLLCALL_BUILD_SERVERS=1 builds them)", strings.Join(plan.Downloads, ", "))
	}
	if first := plan.String(); first != "" {
		log.Printf("builds these first, once: %s", first)
	}
	if t.takes != "" {
		log.Printf("takes %s", t.takes)
	}
	if _, err := plan.Build(ctx, log); err != nil || t.binary == "" {
		return err
	}
	return cache.Program(ctx, log, t.program, t.binary)
}

// modules are what the servers, and others, are built from.
func (t target) modules(ctx context.Context) (all []cache.Module, err error) {
	if t.alone {
		return nil, nil
	}
	if all, err = servers.Modules(ctx); err != nil {
		return nil, err
	}
	for _, name := range t.registries {
		its, err := t.versions(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, its...)
	}
	for _, name := range t.others {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		its, err := servers.Other(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, its)
	}
	return all, nil
}

func (t target) versions(ctx context.Context, name string) ([]cache.Module, error) {
	if t.upgrades && name != registries.NacosReader {
		return registries.Modules(ctx, name)
	}
	its, err := registries.Module(ctx, name)
	return []cache.Module{its}, err
}
