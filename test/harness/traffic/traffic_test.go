package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const testTimeout = 30 * time.Second

func TestOnce(t *testing.T) {
	t.Parallel()
	answer := func(status int, body any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(body)
		}
	}
	right := podserver.Answer{Pod: "web-1", UID: "uid-1"}
	cases := map[string]struct {
		reason  string
		handler http.HandlerFunc
		why     string // "" where the request succeeds
	}{
		"Answers": {
			reason:  "200 from the pod that the registry named is a success",
			handler: answer(http.StatusOK, right),
		},
		"AnotherPod": {
			reason:  "the registry named a pod that is no longer at that address",
			handler: answer(http.StatusOK, podserver.Answer{Pod: "web-2", UID: "uid-2"}),
			why:     "another pod answered: web-2",
		},
		"NotOK": {
			reason:  "anything but 200 is a failure, even from the right pod",
			handler: answer(http.StatusServiceUnavailable, right),
			why:     "the answer is 503 Service Unavailable",
		},
		"Garbage": {
			reason:  "an answer that does not say which pod it is from proves nothing",
			handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
			why:     "reading the answer: invalid character 'h' looking for beginning of value",
		},
		"Aborted": {
			reason:  "a pod that stops while it answers has failed its client",
			handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			why:     "connection closed without an answer",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := httptest.NewServer(tc.handler)
			defer pod.Close()
			client := New(Options{Tell: discard})
			client.learn([]registry.Entry{entryAt(t, pod.Listener.Addr())})
			client.once(t.Context())
			expectOne(t, client, tc.reason, tc.why)
		})
	}
}

func TestOnceWithoutServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	expect.NoError(t, err)
	gone := entryAt(t, listener.Addr())
	expect.NoError(t, listener.Close())
	client := New(Options{Tell: discard})
	client.learn([]registry.Entry{gone})
	client.once(t.Context())
	expectOne(t, client, "a pod that has gone refuses the connection", "connection refused")
}

func TestOnceWithNoAnswer(t *testing.T) {
	t.Parallel()
	// Connected by the kernel, and never answered.
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	expect.NoError(t, err)
	defer listener.Close()
	client := New(Options{Tell: discard})
	client.learn([]registry.Entry{entryAt(t, listener.Addr())})
	client.once(t.Context())
	expectOne(t, client, "a pod that hangs is of no use to its client", "no answer in time")
}

func TestOnceWithEmptyRegistry(t *testing.T) {
	t.Parallel()
	client := New(Options{Tell: discard})
	client.once(t.Context())
	if diff := cmp.Diff(Tally{}, client.Tally()); diff != "" {
		t.Errorf("before the first instance there is nothing to count: %s", diff)
	}
	client.learn([]registry.Entry{{State: registry.InService}})
	client.learn(nil)
	client.once(t.Context())
	expectOne(t, client, "an empty registry fails its clients", "the registry has no instance in service")
}

func TestOnceTakesTurns(t *testing.T) {
	t.Parallel()
	var hits [3]atomic.Int32
	var entries []registry.Entry
	for i := range hits {
		pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			hits[i].Add(1)
			_ = json.NewEncoder(w).Encode(podserver.Answer{UID: "uid-1"})
		}))
		defer pod.Close()
		entries = append(entries, entryAt(t, pod.Listener.Addr()))
	}
	client := New(Options{Tell: discard})
	client.learn(entries)
	for range 30 {
		client.once(t.Context())
	}
	for i := range hits {
		if n := hits[i].Load(); n != 10 {
			t.Errorf("instance %d got %d of 30 requests: each must get its turn", i, n)
		}
	}
}

func TestTrafficFollowsTheRegistry(t *testing.T) {
	t.Parallel()
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(podserver.Answer{UID: "uid-1"})
	}))
	defer pod.Close()
	live := entryAt(t, pod.Listener.Addr())
	drained := live
	drained.Address, drained.State = "127.0.0.2", registry.OutOfService
	var reads atomic.Int32
	client := New(Options{Tell: discard, Read: func(context.Context) ([]registry.Entry, error) {
		if reads.Add(1) == 2 {
			return nil, errors.New("not now")
		}
		return []registry.Entry{drained, live}, nil
	}})

	stop := client.Start(t.Context())
	expectSoon(t, "the client reads again after a reading that failed", func() bool { return reads.Load() >= 3 })
	stop()
	count := client.Tally()
	if count.Failed > 0 || count.Requests < 50 {
		t.Errorf("%s: what was read last holds, and an instance out of service gets nothing", count)
	}
	if client.Tally() != count {
		t.Error("there were requests after stop")
	}
}

func TestFailuresAreReportedOncePerPodAndStep(t *testing.T) {
	t.Parallel()
	told := 0
	client := New(Options{Tell: func(_ time.Time, _, what string) {
		if strings.HasPrefix(what, "REQUEST FAILED") {
			told++
		}
	}})
	fail := func(pod string) { client.done(&Failure{Pod: pod, Why: "connection reset"}) }
	for range failuresKept {
		fail("web-1")
	}
	fail("web-2")
	client.NewStep()
	fail("web-1")
	if told != 3 {
		t.Errorf("told %d times, want 3: once for each pod and step", told)
	}
	if n := len(client.FirstFailures()); n != failuresKept {
		t.Errorf("%d failures are kept, want the first %d", n, failuresKept)
	}
	if n := client.Tally().Failed; n != failuresKept+2 {
		t.Errorf("%d failures are counted, want all %d", n, failuresKept+2)
	}
}

func discard(time.Time, string, string) {}

// entryAt is the entry of pod web-1 at the address.
func entryAt(t *testing.T, address net.Addr) registry.Entry {
	t.Helper()
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		t.Fatalf("%s is no TCP address", address)
	}
	return registry.Entry{State: registry.InService, Instance: registry.Instance{
		Service: "web", Address: tcp.IP.String(), Port: tcp.Port, Pod: "web-1", UID: "uid-1",
	}}
}

// expectOne expects one request, failed for this reason or not at all.
func expectOne(t *testing.T, client *Client, reason, why string) {
	t.Helper()
	got, want := client.Tally(), Tally{Requests: 1}
	if why != "" {
		want.Failed = 1
	}
	if got != want {
		t.Errorf("%s: got %s, want %s", reason, got, want)
	}
	told := ""
	for _, f := range client.FirstFailures() {
		told += f.Why
	}
	if diff := cmp.Diff(why, told); diff != "" {
		t.Errorf("%s: %s", reason, diff)
	}
}

func expectSoon(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain: %s", testTimeout, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
