package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAppEntries: managers steer what an application wrote, and create and remove nothing.
func TestAppEntries(t *testing.T) {
	t.Parallel()
	r := newRegistryServer(t)
	in := instanceOf("10.0.0.1")
	r.journal.Saw(in.UID, types.NamespacedName{Namespace: "a", Name: "web-1"}, nil, checker.Sighting{Version: 1})
	app := func(do func(registry.Instance)) func() int {
		return func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			do(in)
			return 0
		}
	}
	call := func(o checker.Op) func() int { return func() int { return send(t, r, appsBook, o, in) } }
	former := in
	former.UID = "the pod before it"
	for _, step := range []struct {
		reason string
		do     func() int
		status int
		state  registry.State
	}{
		{"there is nothing to put back", call(checker.Register), http.StatusUnprocessableEntity, registry.Absent},
		{"nothing is out", call(checker.FailOver), http.StatusNoContent, registry.Absent},
		{"what was not there when it was taken out is in", app(r.appears), 0, registry.InService},
		{"it is another pod's", func() int { return send(t, r, appsBook, checker.FailOver, former) }, http.StatusNoContent, registry.InService},
		{"it is taken out", call(checker.FailOver), http.StatusNoContent, registry.OutOfService},
		{"a renewal changes nothing", app(r.appears), 0, registry.OutOfService},
		{"it is not the former pod's", func() int { return send(t, r, appsBook, checker.Deregister, former) }, http.StatusNoContent, registry.OutOfService},
		{"the application ends", app(r.vanishes), 0, registry.Absent},
		{"and comes back", app(r.appears), 0, registry.OutOfService},
		{"it is put back", call(checker.Register), http.StatusNoContent, registry.InService},
		{"no manager removes it", call(checker.Deregister), http.StatusNoContent, registry.OutOfService},
		{"the application ends", app(r.vanishes), 0, registry.Absent},
		{"the registry forgets it", call(checker.Deregister), http.StatusNoContent, registry.Absent},
		{"the next one starts in rotation", app(r.appears), 0, registry.InService},
	} {
		status := step.do()
		state, err := r.books[appsBook].Get(t.Context(), in)
		expect.NoError(t, err)
		if status != step.status || state != step.state {
			t.Errorf("%s: status %d and %s, want %d and %s", step.reason, status, state, step.status, step.state)
		}
	}
	told := r.journal.History(in.UID, func(time.Time) string { return "" })
	if got := strings.Count(told, "put web at 10.0.0.1:8080 in registry "+appsBook+" in service itself"); got != 2 {
		t.Errorf("it was written down %d times that the application put itself in service, want 2:\n%s", got, told)
	}
}

// TestApplications register when their container runs, and end with it.
func TestApplications(t *testing.T) {
	t.Parallel()
	r := newRegistryServer(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "0a1b", Namespace: "a", Name: "web-1", Annotations: map[string]string{
			registriesAnnotation: appsRegistry, servicesAnnotation: "web=8080",
		}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{ContainerID: "one"}}},
	}
	in := instanceOf(pod.Status.PodIP)
	becomes := func(want registry.State) {
		t.Helper()
		expect.Becomes(t, "the entry is "+string(want), func() bool {
			state, err := r.books[appsBook].Get(t.Context(), in)
			return err == nil && state == want
		})
	}
	status := &pod.Status.ContainerStatuses[0]
	for _, container := range []string{"one", "two"} {
		status.ContainerID, status.State.Running = container, &corev1.ContainerStateRunning{}
		r.plays(pod, false)
		becomes(registry.InService)
	}
	status.State.Running = nil
	r.plays(pod, false)
	becomes(registry.Absent)
	status.State.Running = &corev1.ContainerStateRunning{}
	r.plays(pod, false)
	becomes(registry.InService)
	r.plays(pod, true)
	becomes(registry.Absent)
}
