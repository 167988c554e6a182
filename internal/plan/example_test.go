package plan_test

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// A pod has been updated in place, with a template that renames its service from shop to web. docs/architecture.md follows it.
func ExampleOf() {
	shop := lifecycle.Key{Registry: "default", Service: "shop", Address: "10.0.0.2", Port: 8080}
	web := tracker.Target{Registry: "default", Instance: registry.Instance{Service: "web", Address: "10.0.0.2", Port: 8080}}
	facts := plan.Facts{
		Pod:           &lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: "10.0.0.2"}},
		Record:        lifecycle.Record{Version: 1, Want: lifecycle.OutOfService, Instances: []lifecycle.Key{shop}},
		Targets:       []tracker.Target{web},
		Configuration: configured{},
	}
	rows := plan.Of(facts, lifecycle.Decision{Row: lifecycle.RowUpdated, Want: lifecycle.InService})
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		name string
		rows []plan.Row
	}{{"former", rows.Former}, {"present", rows.Present}, {"departing", rows.Departing}} {
		for _, r := range part.rows {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", part.name, r.Want, r)
		}
	}
	_ = table.Flush()
	// Output:
	// present    InService  service "web" at 10.0.0.2:8080
	// departing  Absent     service "shop" at 10.0.0.2:8080
}

type configured struct{}

func (configured) Has(string) bool { return true }

func (configured) CallsPods(string) bool { return false }

func (configured) Lists(string) bool { return true }

func (configured) ReaderLag(string) time.Duration { return 0 }

func (configured) MayBeOne(lifecycle.Key, lifecycle.Key) bool { return false }
