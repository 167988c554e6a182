package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// ledger is a registry of applications that anything can be done to.
type ledger struct {
	mu      sync.Mutex
	entries map[string]bool
}

func (l *ledger) set(at registry.Instance, there bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[at.Endpoint()] = there
}

func (l *ledger) field() *field {
	return &field{
		start: func(_ context.Context, at registry.Instance) (func(context.Context) error, error) {
			l.set(at, true)
			return func(context.Context) error { l.set(at, false); return nil }, nil
		},
		has: func(_ context.Context, at registry.Instance) (bool, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.entries[at.Endpoint()], nil
		},
	}
}

func TestApps(t *testing.T) {
	t.Parallel()
	l := &ledger{entries: map[string]bool{}}
	a := newApps(l.field(), 80, func(err error) { t.Error(err) })
	pod := servingPod("web-1", "uid-1")
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses[0].Ready = true
	pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
	at := registry.Instance{Service: "a", Address: "127.0.0.1", Port: 80, Namespace: "a", Pod: "web-1", UID: "uid-1"}
	stopping := pod.DeepCopy()
	stopping.DeletionTimestamp = &metav1.Time{}
	glance := func(want ...string) {
		t.Helper()
		a.glance(t.Context())
		expect.Equal(t, want, a.account().removed, "the entries that were removed")
	}
	registered := func(want bool) {
		t.Helper()
		expect.Soon(t, "the application to follow its pod", func() error {
			if has, _ := a.field.has(t.Context(), at); has != want || len(a.standing()) == 1 != want {
				return errors.New("it does not yet")
			}
			return nil
		}, func() string { return "" })
	}

	a.observe(t.Context(), pod, false)
	registered(true)
	glance()
	a.observe(t.Context(), stopping, false)
	registered(false)
	glance() // it has left by itself
	a.observe(t.Context(), pod, false)
	registered(true)
	glance()
	l.set(at, false)
	glance("web-1 in a")
	glance("web-1 in a") // counted once
	a.observe(t.Context(), pod, true)
	named, err := a.named(func(context.Context) ([]registry.Entry, error) {
		return []registry.Entry{given("a", at.Address, at.Port)}, nil
	})(t.Context())
	expect.NoError(t, err)
	if named[0].Pod != at.Pod || named[0].UID != at.UID {
		t.Errorf("the entry at %s is of pod %q, want %q", at.Endpoint(), named[0].Pod, at.Pod)
	}
}

func TestConcludeEntries(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		found  account
		failed bool
		says   string
	}{
		"all entries stayed":                 {account{glances: enoughGlances}, false, "adopt: 4000 requests, 0 failed, 0 foreign entries removed; 9 failed without\n"},
		"an application's entry is its own":  {account{enoughGlances, []string{"web-1 in a"}}, true, "The entry of web-1 in a was removed"},
		"with few looks nothing is shown":    {account{glances: enoughGlances - 1}, true, "too few"},
		"a failed request is as bad as ever": {account{glances: enoughGlances}, true, "adopt: 4000 requests, 1 failed"},
	} {
		all := make([]outcome, 2)
		all[0].tally.Requests, all[1].tally.Failed = enoughRequests, 9
		if strings.Contains(reason, "request") {
			all[0].tally.Failed = 1
		}
		var out strings.Builder
		err := conclude(newScreen(&out), all, &tc.found)
		if errors.Is(err, command.ErrFailed) != tc.failed || !strings.Contains(out.String(), tc.says) {
			t.Errorf("%s: got error %v, want %q in\n%s", reason, err, tc.says, &out)
		}
	}
}

func TestMerged(t *testing.T) {
	t.Parallel()
	up := given("shop", "10.0.0.1", dubboPort)
	down := up
	down.State = registry.OutOfService
	for reason, tc := range map[string]struct{ application, offered, want []registry.Entry }{
		"a provider in service by both": {[]registry.Entry{up}, []registry.Entry{up}, []registry.Entry{up}},
		"only as an application":        {[]registry.Entry{up}, nil, []registry.Entry{down}},
		"only by its interface":         {nil, []registry.Entry{up}, []registry.Entry{down}},
		"by its interface it is out":    {[]registry.Entry{up}, []registry.Entry{down}, []registry.Entry{down}},
		"out by both":                   {[]registry.Entry{down}, []registry.Entry{down}, []registry.Entry{down}},
	} {
		expect.Equal(t, tc.want, merged(tc.application, tc.offered), "%s", reason)
	}
}
