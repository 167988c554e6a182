package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// Who is measured. batching is Rollcall with a registry that takes batches, and before is another build of Rollcall, in the rounds.
const (
	theFloor    = "floor"
	theRecipe   = "recipe"
	theRollcall = "rollcall"
	theBatching = "batching"
	theBefore   = "before"
	// thePossible is drawn beside them: the floor, whose pods all wait for one more call of the registry.
	thePossible = "possible"
)

const readyLine = "ready"

// ready tells the parent process.
func ready() { fmt.Println(readyLine) }

// child is what this program does as the floor or the recipe, with a kubeconfig and the registry as its arguments.
func child(who, kubeconfig, registryURL string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	// Each is a field manager of its own, as a controller beside OpenKruise is: one that shares the driver's costs the API server
	// a tenth less.
	config.UserAgent = who
	switch who {
	case theFloor:
		return floor(ctrl.SetupSignalHandler(), config)
	case theRecipe:
		return runRecipe(ctrl.SetupSignalHandler(), config, registryURL)
	default:
		return fmt.Errorf("unknown contestant %q", who)
	}
}

// stage starts contestants.
type stage struct {
	dir         string
	launcher    *process.Launcher
	account     *rest.Config // the rights of the ServiceAccount that ships
	driver      string       // Rollcall's, for the registry
	registryURL string
	before      string // the path of another build, if any
	started     int
	// watched are the namespaces of the next manager, all if empty, and others those that are at work beside the one measured.
	watched []string
	others  []*process.Process
}

// start starts a contestant, and returns when it works.
func (s *stage) start(ctx context.Context, who string, flags ...string) (*process.Process, error) {
	s.started++
	dir := filepath.Join(s.dir, fmt.Sprintf("%s-%d", who, s.started))
	switch who {
	case theFloor, theRecipe:
		return s.startChild(ctx, who, dir)
	}
	path := filepath.Join(s.dir, theRollcall)
	if who == theBefore {
		path = s.before
	}
	m, err := manager.New(manager.Options{
		Name: who, Dir: dir, Path: path, Launcher: s.launcher, Flags: flags,
		Config: fmt.Sprintf("cluster: %s\nnamespaces: [%s]\nregistry: {driver: %s, endpoint: %q}\nhooks: {owned: [%s, %s]}\ndrain: 0s\n",
			clusterName, strings.Join(s.watched, ", "), s.driver, s.registryURL, inPlaceLabel, deleteLabel),
		WriteKubeconfig: func(path string) error { return account.WriteKubeconfig(path, s.account) },
	})
	if err != nil {
		return nil, err
	}
	if err := m.Start(); err != nil {
		return nil, err
	}
	return m.Process(), m.AwaitReady(ctx)
}

// startChild starts this program again.
func (s *stage) startChild(ctx context.Context, who, dir string) (*process.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("creating the folder of %s: %w", who, err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := account.WriteKubeconfig(kubeconfig, s.account); err != nil {
		return nil, err
	}
	p, err := process.Start(s.launcher, dir, process.Command{Name: who, Path: self, Args: []string{who, kubeconfig, s.registryURL}})
	if err != nil {
		return nil, err
	}
	return p, p.WaitReady(ctx, func(context.Context) error {
		if !strings.Contains(process.LogTail(p.LogPath()), readyLine) {
			return errors.New("it has not listed the pods")
		}
		return nil
	})
}
