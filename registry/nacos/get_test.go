package nacos_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestWhatIsOnItsWayIsReadBack has a change land when the read-back begins: readers are shown it 500 ms later.
func TestWhatIsOnItsWayIsReadBack(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{"apiVersion":"v3"}`)
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	read := time.Time{}
	f.meddle(func(http.ResponseWriter, string, url.Values) bool {
		read = time.Now()
		return false
	})
	start := time.Now()
	if _, err := d.Get(t.Context(), drivertest.Pod(1)); err != nil {
		t.Fatal(err)
	}
	const lag = 500 * time.Millisecond // nacos.naming.push.pushTaskDelay
	if waited := read.Sub(start); waited < lag {
		t.Errorf("the server was asked after %s, want later than it may lag", waited)
	}
}
