package rollout

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

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	answer := func(status int, pod string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(podserver.Answer{Pod: pod})
		}
	}
	type row struct {
		reason  string
		handler http.HandlerFunc // nil where the connection is never answered
		down    bool
		why     string // "" where the request succeeds
	}
	expect.Each(t, map[string]row{
		"answers":     {"200 from the pod that the registry named is a success", answer(200, "web-1"), false, ""},
		"another pod": {"the pod is no longer at that address", answer(200, "web-2"), false, "another pod answered: web-2"},
		"not OK":      {"anything but 200 is a failure, even from the right pod", answer(503, "web-1"), false, "503 Service Unavailable"},
		"garbage": {"an answer that does not say which pod it is from proves nothing", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
		}, false, "reading the answer"},
		"aborted": {"a pod that stops while it answers has failed its client", func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}, false, "connection closed without an answer"},
		"gone":  {"a pod that has gone refuses the connection", nil, true, "connection refused"},
		"hangs": {"a pod that hangs is of no use to its client", nil, false, "no answer in time"},
	}, func(t *testing.T, tc row) {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		expect.NoError(t, err)
		defer listener.Close()
		if tc.handler != nil {
			go func() { _ = http.Serve(listener, tc.handler) }()
		}
		if tc.down {
			expect.NoError(t, listener.Close())
		}
		client := NewClient(ClientOptions{})
		client.learn([]registry.Entry{entryAt(listener.Addr())})
		client.once(t.Context())
		expectOne(t, client, tc.reason, tc.why)
	})
}

// TestVia: who passes a request on chooses the pod, and says why where it can't.
func TestVia(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(podserver.Answer{Pod: "web-2"})
	}))
	defer gateway.Close()
	client := NewClient(ClientOptions{Via: gateway.URL})
	client.learn([]registry.Entry{{Instance: registry.Instance{Pod: "web-1"}}})
	client.once(t.Context())
	if got := client.Tally(); got != (Tally{Requests: 1}) {
		t.Errorf("any pod's answer is good: %s, %v", got, client.Failures())
	}
	status = http.StatusBadGateway
	client.once(t.Context())
	if got := client.Failures(); len(got) != 1 || got[0].Pod != "" || !strings.Contains(got[0].Why, "web-2") {
		t.Errorf("got %+v, want one failure of no pod, with what the gateway says", got)
	}
}

// TestSend: a client that sends something else counts it like a request.
func TestSend(t *testing.T) {
	t.Parallel()
	var sent string
	client := NewClient(ClientOptions{Send: func(_ context.Context, target registry.Entry) error {
		sent = target.Pod
		return errors.New("the stream was cut")
	}})
	client.learn([]registry.Entry{{Instance: registry.Instance{Pod: "web-1"}}})
	client.once(t.Context())
	expectOne(t, client, "it failed", "the stream was cut")
	expect.Equal(t, "web-1", sent, "whom it was sent to")
}

func TestOnceWithEmptyRegistry(t *testing.T) {
	t.Parallel()
	client := NewClient(ClientOptions{})
	client.once(t.Context())
	expect.Equal(t, Tally{}, client.Tally(), "before the first instance there is nothing to count")
	client.learn([]registry.Entry{{State: registry.InService}})
	client.learn(nil)
	client.once(t.Context())
	expectOne(t, client, "an empty registry fails its clients", "the registry has no instance in service")
}

// TestTrafficFollowsTheRegistry: instances in service get their turns, others nothing, and what was read last holds where a
// reading fails.
func TestTrafficFollowsTheRegistry(t *testing.T) {
	t.Parallel()
	var hits [2]atomic.Int32
	var entries []registry.Entry
	for i := range hits {
		pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			hits[i].Add(1)
			_ = json.NewEncoder(w).Encode(podserver.Answer{Pod: "web-1"})
		}))
		defer pod.Close()
		entries = append(entries, entryAt(pod.Listener.Addr()))
	}
	drained := entries[0]
	drained.Address, drained.State = "127.0.0.2", registry.OutOfService
	var reads atomic.Int32
	client := NewClient(ClientOptions{Read: func(context.Context) ([]registry.Entry, error) {
		if reads.Add(1) == 2 {
			return nil, errors.New("not now")
		}
		return append(entries, drained), nil
	}})
	stop := client.Start(t.Context())
	expect.Becomes(t, "the client reads again after a reading that failed", func() bool { return reads.Load() >= 3 })
	stop()
	count, one, other := client.Tally(), hits[0].Load(), hits[1].Load()
	if count.Failed > 0 || count.Requests < 50 || max(one, other)-min(one, other) > 10 {
		t.Errorf("%s; one instance got %d and the other %d", count, one, other)
	}
	if client.Tally() != count {
		t.Error("there were requests after stop")
	}
}

// entryAt is the entry of pod web-1 at the address.
func entryAt(address net.Addr) registry.Entry {
	tcp := address.(*net.TCPAddr)
	return registry.Entry{State: registry.InService, Instance: registry.Instance{
		Service: "web", Address: tcp.IP.String(), Port: tcp.Port, Pod: "web-1",
	}}
}

func expectOne(t *testing.T, client *Client, reason, why string) {
	t.Helper()
	want := Tally{Requests: 1, Failed: min(1, len(why))}
	expect.Equal(t, want, client.Tally(), "%s", reason)
	for _, f := range client.Failures() {
		if !strings.Contains(f.Why, why) {
			t.Errorf("%s: it failed with %q, want %q", reason, f.Why, why)
		}
	}
}
