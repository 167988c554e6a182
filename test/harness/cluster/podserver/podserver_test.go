package podserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestCanServe(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for reason, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"its container runs and is ready":               {func(*corev1.Pod) {}, true},
		"a readiness gate does not stop the container":  {func(p *corev1.Pod) { p.Status.Conditions = nil }, true},
		"nothing runs yet":                              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, false},
		"nothing runs any more":                         {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"no client can reach it without an address":     {func(p *corev1.Pod) { p.Status.PodIP = "" }, false},
		"kubelet stops it, whatever finalizers it has":  {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false},
		"the container still starts":                    {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, false},
		"the container restarts":                        {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }, false},
		"the container with the old image is killed":    {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2" }, false},
		"nothing is known of the container":             {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, false},
		"a preStop sleep holds the old image":           {func(p *corev1.Pod) { sleepy(p).Spec.Containers[0].Image = "web:2" }, true},
		"a preStop sleep holds what is deleted":         {func(p *corev1.Pod) { sleepy(p).DeletionTimestamp = &now }, true},
		"a container that slept stops":                  {func(p *corev1.Pod) { sleepy(p).Status.Phase = corev1.PodSucceeded }, false},
		"each container counts, and the second is none": {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b"}) }, false},
	} {
		p := pod("127.0.0.1", "uid-1")
		tc.change(p)
		if got := CanServe(p); got != tc.want {
			t.Errorf("%s: got %t, want %t", reason, got, tc.want)
		}
	}
}

func sleepy(p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	return p
}

func TestStops(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"new image": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, port := serve(t)
			p := pod("127.200.1.1", "uid-1")
			s.observe(p, false)
			expectAnswer(t, "127.200.1.1", port, "uid-1")
			p = p.DeepCopy()
			p.Spec.Containers[0].Image = "web:2"
			s.observe(p, gone)
			expectRefused(t, "127.200.1.1", port)
		})
	}
}

func TestAddressReuse(t *testing.T) {
	t.Parallel()
	s, port := serve(t)
	old := pod("127.200.2.1", "uid-old")
	s.observe(old, false)
	s.observe(pod("127.200.2.1", "uid-new"), false)
	s.observe(old, true)
	expectAnswer(t, "127.200.2.1", port, "uid-new")
}

func serve(t *testing.T) (*Server, int) {
	t.Helper()
	return serveLooking(t, func(context.Context, string) ([]corev1.Pod, error) { return nil, nil })
}

func serveLooking(t *testing.T, look func(context.Context, string) ([]corev1.Pod, error)) (*Server, int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	listener, err := listen(ctx)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	s := newServer(look)
	served := make(chan error, 1)
	go func() { served <- s.serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve returns %v when its context ends, want nil", err)
		}
	})
	return s, listener.Addr().(*net.TCPAddr).Port
}

func ask(t *testing.T, ip string, port int) (Answer, error) {
	t.Helper()
	url := "http://" + net.JoinHostPort(ip, strconv.Itoa(port)) + "/"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	expect.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	var answer Answer
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

func expectAnswer(t *testing.T, ip string, port int, uid string) {
	t.Helper()
	answer, err := ask(t, ip, port)
	want := Answer{Pod: "web-" + uid, Namespace: "default", UID: uid, Image: "web:1"}
	if err != nil || answer != want {
		t.Errorf("%s answers %+v, %v, want %+v", ip, answer, err, want)
	}
}

func expectRefused(t *testing.T, ip string, port int) {
	t.Helper()
	answer, err := ask(t, ip, port)
	if err == nil {
		t.Errorf("%s answers %+v, want a reset", ip, answer)
		return
	}
	// A client that was still writing its request sees the reset as a broken pipe.
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.EOF) {
		t.Errorf("%s refuses with %v, want a reset", ip, err)
	}
}

func pod(ip, uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-" + uid, Namespace: "default", UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip,
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "web", Image: "web:1", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
}
