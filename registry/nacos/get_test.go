package nacos_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// TestWhatIsReadBack is of what each version tells: v1 and v2 have no enabled for a single instance.
func TestWhatIsReadBack(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2", "v3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, version)
			d := at(t, f.URL, `{"apiVersion":"`+version+`"}`)
			says := func(when string, in registry.Instance, want registry.State) {
				t.Helper()
				if got, err := d.Get(t.Context(), in); err != nil || got != want {
					t.Errorf("%s: got %q, %v; want %q", when, got, err, want)
				}
			}
			says("never registered", web(1), registry.Absent)
			if err := d.Register(t.Context(), web(1)); err != nil {
				t.Fatal(err)
			}
			says("registered", web(1), registry.InService)
			heir := web(1)
			heir.UID = "another"
			says("another pod", heir, registry.Absent)
			if err := d.FailOver(t.Context(), web(1)); err != nil {
				t.Fatal(err)
			}
			f.requests()
			says("failed over", web(1), registry.OutOfService)
			if asked := f.requests(); len(asked) != 1 || !strings.HasPrefix(asked[0], "GET ") {
				t.Errorf("it asked %q, want one GET", asked)
			}
		})
	}
}

// TestWhatIsOnItsWayIsReadBack has a change land when the read-back begins: readers are shown it 500 ms later.
func TestWhatIsOnItsWayIsReadBack(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{"apiVersion":"v3"}`)
	if err := d.Register(t.Context(), web(1)); err != nil {
		t.Fatal(err)
	}
	read := time.Time{}
	f.meddle(func(http.ResponseWriter, string, url.Values) bool {
		read = time.Now()
		return false
	})
	start := time.Now()
	if _, err := d.Get(t.Context(), web(1)); err != nil {
		t.Fatal(err)
	}
	const lag = 500 * time.Millisecond // nacos.naming.push.pushTaskDelay
	if waited := read.Sub(start); waited < lag {
		t.Errorf("the server was asked after %s, want later than it may lag", waited)
	}
}
