package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/history"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// judgeEvery is how often flips are judged.
const judgeEvery = 50 * time.Millisecond

// world is what everything happens in: the servers, which several runs may share.
type world struct {
	out      *output
	dir      string
	cluster  *cluster.Cluster
	k8s      client.WithWatch
	launcher *process.Launcher
	registry registrySide
	// account is what managers run as: the ServiceAccount that ships.
	account *rest.Config
	// passed: the logs are not needed.
	passed bool
}

// newWorld starts the servers. stop ends them, also after an error, and removes the logs of a run that passed.
func newWorld(ctx context.Context, out *output, start func(context.Context) (registrySide, error)) (w *world, stop func(), err error) {
	w = &world{out: out, launcher: process.NewLauncher()}
	stop = func() {
		if w.registry != nil {
			w.registry.Stop()
		}
		if w.cluster != nil {
			w.cluster.Stop()
		}
		w.launcher.Close()
		if w.passed {
			_ = os.RemoveAll(w.dir)
		}
	}
	if w.dir, err = os.MkdirTemp("", "rollcall-chaos-"); err != nil {
		return w, stop, fmt.Errorf("creating a folder for the logs: %w", err)
	}
	if w.cluster, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(w.dir, "cluster"), Log: out}); err != nil {
		return w, stop, err
	}
	w.k8s = w.cluster.Client()
	if w.account, err = account.Install(ctx, w.cluster.Config()); err != nil {
		return w, stop, err
	}
	owned, marks := []string{"example.com/*", "example.io/*"}, []string{markLabel, markAnnotation}
	if err = account.Restrict(ctx, w.cluster.Config(), owned, marks); err != nil {
		return w, stop, err
	}
	w.registry, err = start(ctx)
	return w, stop, err
}

// game is one run: a binary, a plan, and what came of it.
type game struct {
	*world

	binary   string
	plan     planner
	replicas int32
	length   time.Duration
	// held is what a soak looks at, else nil.
	held held

	journal   *checker.Journal
	managers  *managers
	workloads []*workload

	// moving is held while the usual registry of pods changes. Those that follow it have no annotation, by UID.
	moving  sync.Mutex
	usual   string
	follows map[string]bool
	// networkless are the addresses of pods whose network has not given them theirs yet, by UID.
	networkless map[string]string

	// lasting is held while a fault of the registry lasts, and for a while after it.
	lasting sync.Mutex

	done     tally
	underway underway
	doing    atomic.Pointer[string]
	report   report
}

// play makes the workloads and the managers, and goes through storms and calms until the time is up or something is wrong.
func (g *game) play(ctx context.Context) error {
	ctx, cancel := g.cluster.During(ctx)
	defer cancel()
	var background sync.WaitGroup
	defer background.Wait()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()

	g.journal, g.workloads, g.usual = newJournal(), g.registry.workloads(), defaultRegistry
	g.follows, g.networkless = map[string]bool{}, map[string]string{}
	if err := g.registry.begin(watching, g); err != nil {
		return err
	}
	g.say("starting: %d CloneSets of %d pods", len(g.workloads), g.replicas)
	watched, err := history.Follow(watching, g.k8s, &corev1.PodList{}, g.saw)
	if err != nil {
		return err
	}
	background.Go(func() { <-watched })
	background.Go(func() { g.judge(watching) })
	if g.managers, err = startManagers(ctx, g); err != nil {
		return err
	}
	defer g.managers.Stop()
	background.Go(func() { g.progress(watching) })
	background.Go(func() { g.network(watching) })
	if err := g.create(ctx); err != nil {
		return err
	}
	err = g.rounds(ctx)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// newJournal is of what the managers are configured with.
func newJournal() *checker.Journal {
	return checker.New(checker.Options{Drain: drainTime, CallTimeout: callTimeout, OnlyManagers: true, Lease: leaseLasts})
}

func (g *game) rounds(ctx context.Context) error {
	defer func() { g.registry.judge(g.journal) }()
	if err := g.calm(ctx); err != nil || g.report.failed() {
		return err
	}
	g.journal.Begin()
	began := time.Now()
	for number := 0; ctx.Err() == nil && (number < g.plan.fewest(g.length) || time.Since(began)+g.plan.storm < g.length); number++ {
		if err := g.storm(ctx, number); err != nil || g.report.failed() {
			return err
		}
		if err := g.calm(ctx); err != nil || g.report.failed() {
			return err
		}
		g.registry.judge(g.journal)
		if g.held == nil {
			continue
		}
		if err := g.held.take(ctx, g.managers.all, g.out); err != nil {
			return err
		}
	}
	return nil
}

// judge looks at what was seen again and again.
func (g *game) judge(ctx context.Context) {
	for ctx.Err() == nil {
		g.journal.Judge(time.Now())
		if broken := g.journal.Broken(); len(broken) > 0 {
			g.report.flipped(broken)
		}
		wait.Pause(ctx, judgeEvery)
	}
}

func (g *game) progress(ctx context.Context) {
	const every = 10 * time.Second
	for {
		wait.Pause(ctx, every)
		if ctx.Err() != nil {
			return
		}
		n, leader := g.journal.Counts(), "none"
		if leads := g.managers.leader(); leads != nil {
			leader = leads.name
		}
		g.out.printf("%s; so far %d transitions, %d kills, %d faults, %d flips checked, %d calls, %d addresses used again; "+
			"%d pods, leader %s; now %s",
			*g.doing.Load(), n.Transitions, g.done.kills(), g.done.faults(), n.Flips, n.Calls, n.Reused,
			len(g.journal.Known()), leader, cmp.Or(g.underway.String(), "nothing"))
	}
}

// say sets what the progress shows, and shows it.
func (g *game) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	g.doing.Store(&text)
	g.out.printf("%s", text)
}

// create makes the namespaces and the CloneSets.
func (g *game) create(ctx context.Context) error {
	for _, w := range g.workloads {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		if err := client.IgnoreAlreadyExists(kube.Create(ctx, g.k8s, namespace)); err != nil {
			return err
		}
		if err := kube.Create(ctx, g.k8s, w.cloneSet(g.replicas)); err != nil {
			return err
		}
	}
	return nil
}
