package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// hang is longer than any probe takes to notice, and until that counts.
	hang = time.Minute
	// flap is longer than a pod waits for its first probe after kubelet was restarted.
	flap = 30 * time.Second

	damped = "unready: {after: 5s}\n"
	costs  = "%-16v %-20v %-12v %8v %8v %28v\n"
)

// cost is what clients paid, and for how long pods were out of rotation, one after the other.
type cost struct {
	requests rollout.Tally
	out      time.Duration
}

// unreadyAfter measures what it costs with and without unready.after that an application stops answering, and that pods turn unready
// which serve on. One arm has quick probes, and one those that Kubernetes has by default.
func unreadyAfter(ctx context.Context, w *world) (err error) {
	var arms []*staged
	defer func() {
		for _, a := range arms {
			w.tellLost(a)
			err = errors.Join(err, a.strike(ctx))
		}
	}()
	for _, period := range []int32{1, 10} {
		requests := rollout.ClientOptions{Every: 20 * time.Millisecond, Timeout: 2 * time.Second}
		a, err := w.stage(ctx, fmt.Sprintf("probe-%ds", period), requests, func(set *appsv1alpha1.CloneSet) {
			probe := set.Spec.Template.Spec.Containers[0].ReadinessProbe
			probe.PeriodSeconds, probe.TimeoutSeconds = period, 2
		})
		if err != nil {
			return err
		}
		arms = append(arms, a)
	}
	fmt.Fprintf(w.out, costs, "unready.after", "event", "arm", "requests", "lost", "out of rotation, seconds")
	if err := w.both(ctx, "0s", arms); err != nil {
		return err
	}
	if err := w.reconfigure(ctx, 1, func(config string) string { return config + damped }); err != nil {
		return err
	}
	if err := w.both(ctx, "5s", arms); err != nil {
		return err
	}
	return w.reconfigure(ctx, 2, func(config string) string { return strings.TrimSuffix(config, damped) })
}

// both has both kinds of events happen.
func (w *world) both(ctx context.Context, after string, arms []*staged) error {
	for _, event := range []struct {
		name  string
		occur func(context.Context, []*staged) error
	}{{"application hangs", hangOne}, {"kubelet restarts", w.restartKubelets}} {
		paid, err := measure(ctx, arms, event.occur)
		if err != nil {
			return fmt.Errorf("%s: %w", event.name, err)
		}
		for i, c := range paid {
			fmt.Fprintf(w.out, costs, after, event.name, arms[i].name, c.requests.Requests, c.requests.Failed,
				c.out.Round(time.Second/10).Seconds())
		}
	}
	return nil
}

// measure returns what an event costs each arm, until all pods are in rotation again.
func measure(ctx context.Context, arms []*staged, occur func(context.Context, []*staged) error) ([]cost, error) {
	paid := make([]cost, len(arms))
	watched, done := context.WithCancel(ctx)
	defer done()
	var watching sync.WaitGroup
	for i, a := range arms {
		paid[i].requests = a.client.Tally()
		watching.Go(func() { paid[i].out = a.missing(watched) })
	}
	if err := occur(ctx, arms); err != nil {
		return nil, err
	}
	for _, a := range arms {
		if err := a.settle(ctx); err != nil {
			return nil, err
		}
	}
	wait.Pause(ctx, catchUp)
	done()
	watching.Wait()
	for i, a := range arms {
		paid[i].requests = a.client.Tally().Since(paid[i].requests)
	}
	return paid, nil
}

// missing adds up for how long pods are out of rotation, until ctx ends.
func (a *arm) missing(ctx context.Context) (out time.Duration) {
	for last := time.Now(); ctx.Err() == nil; wait.Pause(ctx, pollStep) {
		entries, _, err := a.directory.lookUp(ctx, a.name, 0)
		if err != nil {
			continue
		}
		now := time.Now()
		out += time.Duration(replicas-len(entries)) * now.Sub(last)
		last = now
	}
	return out
}

// hangOne has one application of each arm answer nothing for some time.
func hangOne(ctx context.Context, arms []*staged) error {
	for _, a := range arms {
		pods, err := a.Pods(ctx)
		if err != nil {
			return err
		}
		application := registries.NewClient("http://" + net.JoinHostPort(pods[0].Status.PodIP, strconv.Itoa(appPort)))
		if _, err := application.Do(ctx, http.MethodPost, "/hang?for="+hang.String(), nil); err != nil {
			return err
		}
	}
	wait.Pause(ctx, hang)
	return nil
}

// restartKubelets restarts the kubelet of one node after the other, so that never more pods turn unready than the panic threshold allows.
func (w *world) restartKubelets(ctx context.Context, _ []*staged) error {
	var nodes corev1.NodeList
	if err := w.k8s.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for _, node := range nodes.Items {
		if err := w.site.RestartKubelet(ctx, node.Name); err != nil {
			return fmt.Errorf("restarting the kubelet of %s: %w", node.Name, err)
		}
		wait.Pause(ctx, flap)
	}
	return nil
}

// reconfigure edits the managers' configuration, and returns once each has reloaded it for the nth time.
func (w *world) reconfigure(ctx context.Context, n int, edit func(string) string) error {
	config := &corev1.ConfigMap{}
	config.Namespace, config.Name = rollcallNamespace, "rollcall-config"
	const file = "config.yaml"
	if err := kube.Change(ctx, w.k8s, config, func() { config.Data[file] = edit(config.Data[file]) }); err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) error {
		return w.managersShow(ctx, fmt.Sprintf(`rollcall_config_reloads_total{outcome="applied"} %d`, n))
	})
}
