package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// notServing is what Kusion's operators and kubelet write before something is done with a pod.
const notServing = `{"status":{"conditions":[
	{"type":"pod.kusionstack.io/service-ready","status":"False"},{"type":"Ready","status":"False"}]}}`

// besidePeer has Rollcall and KusionStack's resourceconsist put the same pods in service and out of it, by turns.
func (b *bench) besidePeer(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("test", "bench", "peer"), "-o", filepath.Join(b.dir, thePeer), ".")
	if output, err := build.CombinedOutput(); err != nil {
		b.say("NOT MEASURED: the part peer, because resourceconsist can't be built here: %v\n%s", err, output)
		return nil
	}
	for i := range serviceCount {
		name := "web-" + strconv.Itoa(i)
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"kusionstack.io/control": set}},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{appLabel: name}, Ports: []corev1.ServicePort{{Port: podPort}}},
		}
		if err := kube.Create(ctx, b.load.k8s, service); err != nil {
			return err
		}
	}
	all := []string{theRollcall, thePeer, theWidePeer}
	for round := range b.peerRounds {
		for i := range all {
			who := all[(round+i)%len(all)]
			if err := b.with(ctx, who, nil, func(p *process.Process) error { return b.inAndOut(ctx, p, who, round) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// inAndOut takes pods in and out at once, and others at a pace. It removes them while the contestant is there to take its
// finalizers away.
func (b *bench) inAndOut(ctx context.Context, p *process.Process, who string, round int) error {
	if err := b.inAndOutOf(ctx, p, observation{Case: peerCase, Who: who, Round: round}, 0, b.storms[0].pods, 0); err != nil {
		return err
	}
	o := observation{Case: pacedPeerCase, Who: who, Round: round}
	if err := b.inAndOutOf(ctx, p, o, b.storms[0].pods, b.paced/2, time.Second/pace); err != nil {
		return err
	}
	return b.load.clear(ctx)
}

func (b *bench) inAndOutOf(ctx context.Context, p *process.Process, o observation, first, n int, every time.Duration) error {
	if err := b.createUnready(ctx, o.Who, first, n); err != nil {
		return err
	}
	before, err := b.sample(p)
	if err != nil {
		return err
	}
	o.Values = map[string]float64{}
	for _, in := range []bool{true, false} {
		turned := make([]time.Time, n)
		turn := func(ctx context.Context, i int) error {
			turned[i] = time.Now()
			return b.turnPod(ctx, o.Who, first+i, in)
		}
		if every > 0 {
			err = inTurn(ctx, n, every, turn)
		} else {
			err = b.load.each(ctx, n, turn)
		}
		if err != nil {
			return err
		}
		if err := b.arrivals(ctx, o.Values, turned, first, in); err != nil {
			return err
		}
		if err := b.load.settle(ctx, "the rest", func() bool { return b.registry.underWay.Load() == 0 }); err != nil {
			return err
		}
	}
	after, err := b.sample(p)
	if err != nil {
		return err
	}
	turns := 2 * float64(n)
	o.Values[cpu] = milliseconds(after.own-before.own) / turns
	o.Values[apiCPU] = milliseconds(after.api-before.api) / turns
	o.Values[writes] = float64(after.writes-before.writes) / turns
	o.Values[calls] = float64(after.calls-before.calls) / turns
	o.Values[lists] = float64(after.listed-before.listed) / turns
	o.Values[resident] = after.resident
	b.note(o)
	return nil
}

// createUnready makes pods that do not run yet, and waits until the peer has noted on each which finalizer it is to have. Its
// webhook would, when they are made.
func (b *bench) createUnready(ctx context.Context, who string, first, n int) error {
	versions := b.load.written() + n
	if who != theRollcall {
		versions += n
	}
	err := b.load.each(ctx, n, func(ctx context.Context, i int) error {
		return kube.Create(ctx, b.load.k8s, managedPod(b.load.owners[0], first+i))
	})
	if err != nil {
		return err
	}
	return b.load.settle(ctx, "the pods to be known", func() bool { return b.load.written() >= versions })
}

// turnPod makes a pod ready, or says as each contestant hears it that the pod is to leave.
func (b *bench) turnPod(ctx context.Context, who string, number int, in bool) error {
	b.load.mu.Lock()
	b.load.moves++
	b.load.mu.Unlock()
	pod := kube.Pod(namespace, podName(number))
	switch {
	case in:
		return b.load.report(ctx, pod, running(number))
	case who == theRollcall:
		return b.load.move(ctx, number, appspub.LifecycleStatePreparingUpdate)
	default:
		return b.load.report(ctx, pod, []byte(notServing))
	}
}

// arrivals waits until the registry has all pods in or out, and notes how long it took since the driver wrote that they turn.
func (b *bench) arrivals(ctx context.Context, values map[string]float64, turned []time.Time, first int, in bool) error {
	n, last := len(turned), turned[0]
	latencies := make([]time.Duration, 0, n)
	for i := range turned {
		name := podName(first + i)
		var at time.Time
		if err := await(ctx, name+" to be in the registry as it should", func() bool {
			found, changed := b.registry.first.Load(change{name, in})
			at, _ = found.(time.Time)
			return changed
		}); err != nil {
			return err
		}
		if at.After(last) {
			last = at
		}
		latencies = append(latencies, at.Sub(turned[i]))
	}
	slices.Sort(latencies)
	way := wayOf(in)
	values[way+seconds] = last.Sub(turned[0]).Seconds()
	values[way+p50], values[way+p99] = milliseconds(latencies[n/2]), milliseconds(latencies[n*99/100])
	return nil
}

// wayOf begins the names of values that there are for both ways.
func wayOf(in bool) string {
	if in {
		return "in "
	}
	return "out "
}

// besidePeer has rows for each case: Rollcall's figures, the peer's with its 5 workers and with 128, and Rollcall against the
// first.
func (all observations) besidePeer(s sizes) [][]string {
	if len(all.of(peerCase, theRollcall, cpu)) == 0 {
		return nil // it was not measured
	}
	rows := [][]string{{"", "Rollcall", thePeer, "with 128 workers", "Rollcall/" + thePeer}}
	in, out := wayOf(true), wayOf(false)
	for _, c := range [][2]string{{peerCase, fmt.Sprintf("%d at once", s.storms[0].pods)}, {pacedPeerCase, pacedCase}} {
		name, title := c[0], c[1]
		for _, figure := range [][2]string{
			{"all in after, s", in + seconds},
			{"in after, p50 ms", in + p50},
			{"in after, p99 ms", in + p99},
			{"all out after, s", out + seconds},
			{"out after, p50 ms", out + p50},
			{"out after, p99 ms", out + p99},
			{"own CPU, ms a turn", cpu},
			{"API server's CPU, ms a turn", apiCPU},
			{"writes of pods a turn", writes},
			{"changing calls a turn", calls},
			{"lists of the registry a turn", lists},
			{"resident, MB", resident},
		} {
			mine, peers := all.of(name, theRollcall, figure[1]), all.of(name, thePeer, figure[1])
			wide := all.of(name, theWidePeer, figure[1])
			rows = append(rows, []string{title + ": " + figure[0], spread(mine), spread(peers), spread(wide), spread(each(mine, peers))})
		}
	}
	return rows
}
