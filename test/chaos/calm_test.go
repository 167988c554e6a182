package main

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestCalm: what each look at the world finds, seconds after the calm began, and when the calm is over or gives up.
func TestCalm(t *testing.T) {
	t.Parallel()
	leader, other := &contender{name: "m1"}, &contender{name: "m2"}
	gone := grievance{kind: lost, text: "x", within: 10 * time.Second, leading: true}
	away := errors.New("connection refused")
	type look struct {
		at    int
		all   []grievance
		err   error
		leads *contender
	}
	type row struct {
		reason string
		looks  []look
		over   bool
		want   []string
	}
	expect.Each(t, map[string]row{
		"all is well": {
			reason: "calls that were held back have landed by then, or never will",
			looks:  []look{{at: 0, leads: leader}, {at: 2, leads: leader}, {at: 4, leads: leader}},
			over:   true,
		},
		"too soon": {
			reason: "a call that was held back may still land",
			looks:  []look{{at: 0, leads: leader}, {at: 2, leads: leader}, {at: 3, leads: leader}},
		},
		"just repaired": {
			reason: "it must stay so for a moment",
			looks:  []look{{at: 19, all: []grievance{gone}, leads: leader}, {at: 19, leads: leader}},
		},
		"not repaired yet": {
			reason: "time counts from when a manager led",
			looks:  []look{{at: 0, all: []grievance{gone}}, {at: 3, all: []grievance{gone}}, {at: 12, all: []grievance{gone}, leads: leader}},
		},
		"not repaired": {
			reason: "its time was up",
			looks:  []look{{at: 0, all: []grievance{gone}, leads: leader}, {at: 10, all: []grievance{gone}, leads: leader}},
			want:   []string{"x, for 10s"},
		},
		"not repaired, and another leads": {
			reason: "the new one has its own time",
			looks: []look{
				{at: 0, all: []grievance{gone}, leads: leader}, {at: 9, all: []grievance{gone}, leads: other},
				{at: 12, all: []grievance{gone}, leads: other},
			},
		},
		"no manager leads": {
			reason: "who is gone for longer than a lease does not come back",
			looks:  []look{{at: 0}, {at: 60}},
			want:   []string{"no manager leads, for 1m0s"},
		},
		"the API server is away": {
			reason: "it is started again at once",
			looks:  []look{{at: 0, err: away, leads: leader}, {at: 60, err: away, leads: leader}},
			want:   []string{"the API server is away, for 1m0s"},
		},
		"the API server is away for a moment": {
			reason: "what was wrong before counts on: no look has shown it repaired",
			looks: []look{
				{at: 0, all: []grievance{gone}, leads: leader}, {at: 5, err: away, leads: leader},
				{at: 10, all: []grievance{gone}, leads: leader},
			},
			want: []string{"x, for 10s"},
		},
		"it never ends": {
			reason: "one thing after the other is wrong, and each is repaired in time",
			looks:  []look{{at: 0, leads: leader}, {at: 181, all: []grievance{gone}, leads: leader}},
			want:   []string{"x, for 0s"},
		},
	}, func(t *testing.T, tc row) {
		began := time.Unix(100, 0)
		c := newLull(began)
		for _, l := range tc.looks {
			c.look(l.all, l.err, l.leads, began.Add(time.Duration(l.at)*time.Second))
		}
		var got []string
		for _, f := range c.overdue() {
			got = append(got, f.text)
		}
		if c.over() != tc.over || !slices.Equal(got, tc.want) {
			t.Errorf("%s: over is %t and overdue %q, want %t and %q", tc.reason, c.over(), got, tc.over, tc.want)
		}
	})
}
