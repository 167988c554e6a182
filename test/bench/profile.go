package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const profiledPods = 1500

// profiles takes Rollcall's profiles, and shows what they have at their tops.
type profiles struct {
	*bench

	address string
	// suffix ends the names of the files, so that one case keeps its own.
	suffix string
}

func newProfiles(ctx context.Context, b *bench) (*profiles, error) {
	ports, err := process.FreePorts(ctx, 1)
	if err != nil {
		return nil, err
	}
	return &profiles{bench: b, address: fmt.Sprintf("127.0.0.1:%d", ports[0])}, nil
}

func (p *profiles) flags() []string { return []string{"--pprof-bind-address=" + p.address} }

// storms takes the CPU's profile, and that of what was allocated, while all pods are updated again and again.
func (b *bench) profile(ctx context.Context) error {
	p, err := newProfiles(ctx, b)
	if err != nil {
		return err
	}
	return b.with(ctx, theRollcall, p.flags(), func(*process.Process) error {
		pods := min(profiledPods, b.growth[len(b.growth)-1])
		if err := b.populate(ctx, theRollcall, 0, pods); err != nil {
			return err
		}
		taken := p.cpu(ctx)
		for {
			for _, state := range []appspub.LifecycleStateType{
				appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdated, appspub.LifecycleStateNormal,
			} {
				if _, err := b.load.storm(ctx, pods, state); err != nil {
					return err
				}
			}
			select {
			case err := <-taken:
				if err != nil {
					return err
				}
				if err := p.take(ctx, "allocs", "allocs"); err != nil {
					return err
				}
				return p.show(ctx, "cpu", "allocs")
			default:
			}
		}
	})
}

func (p *profiles) file(name string) string { return filepath.Join(p.out, name+p.suffix+".pprof") }

// heap takes and shows what is in use after a garbage collection.
func (p *profiles) heap(ctx context.Context) error {
	if err := p.take(ctx, "heap", "heap?gc=1"); err != nil {
		return err
	}
	return p.show(ctx, "heap")
}

// during takes the CPU's profile while something is done, which must take longer, and shows it.
func (p *profiles) during(ctx context.Context, do func() error) error {
	taken := p.cpu(ctx)
	if err := do(); err != nil {
		return err
	}
	if err := <-taken; err != nil {
		return err
	}
	return p.show(ctx, "cpu")
}

// cpu begins to take the CPU's profile, and tells when it has it.
func (p *profiles) cpu(ctx context.Context) <-chan error {
	taken := make(chan error, 1)
	go func() { taken <- p.take(ctx, "cpu", fmt.Sprintf("profile?seconds=%.0f", p.profiled.Seconds())) }()
	return taken
}

// take has pprof fetch a profile, and keep it.
func (p *profiles) take(ctx context.Context, name, path string) error {
	const longest = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	said, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-proto", "-output="+p.file(name),
		"http://"+p.address+"/debug/pprof/"+path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taking profile %s: %w\n%s", name, err, said)
	}
	return nil
}

// show prints the tops: of all functions, and of Rollcall's own with what they call.
func (p *profiles) show(ctx context.Context, names ...string) error {
	index := map[string]string{"cpu": "cpu", "allocs": "alloc_space", "heap": "inuse_space"}
	for _, name := range names {
		for _, more := range [][]string{{"-flat"}, {"-cum", "-show=rollcall/(internal|registry|cmd)"}} {
			args := append([]string{"tool", "pprof", "-top", "-nodecount=10", "-sample_index=" + index[name]}, more...)
			top, err := exec.CommandContext(ctx, "go", append(args, filepath.Join(p.dir, theRollcall), p.file(name))...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("reading profile %s: %w\n%s", name, err, top)
			}
			fmt.Printf("\n%s %v\n%s\n", name, more, top)
		}
	}
	return nil
}
