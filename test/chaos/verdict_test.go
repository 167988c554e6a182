package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/network"
)

// newEnded is a game that has ended, with what its managers wrote.
func newEnded(t *testing.T, log string) (*game, *bytes.Buffer) {
	t.Helper()
	m, err := manager.New(manager.Options{Name: "m1", Dir: t.TempDir(), WriteKubeconfig: func(string) error { return nil }})
	expect.NoError(t, err)
	t.Cleanup(m.Stop)
	expect.NoError(t, os.WriteFile(m.LogPath(), []byte(log), 0o600))
	text := &bytes.Buffer{}
	return &game{
		world: &world{out: newOutput(text), registry: &standIn{network: &network.Network{}}}, journal: newJournal(), length: time.Minute,
		managers: &managers{all: []*contender{{name: m.Name, manager: m}}},
	}, text
}

// unasked has a handler of a pod cleared, and no manager's patch that was answered has done it.
func unasked(g *game, pod string) {
	name, hooks := types.NamespacedName{Namespace: "ns", Name: pod}, checker.Hooks{checker.PreNormal: {traffic}}
	g.journal.Saw(pod, name, hooks, checker.Sighting{At: time.Now(), Version: 1, State: "Normal", Set: map[string]bool{traffic: true}})
	g.journal.Saw(pod, name, hooks, checker.Sighting{At: time.Now(), Version: 2, State: "Normal", Image: pod})
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		log    string
		happen func(*game)
		fails  bool
		want   []string
	}
	expect.Each(t, map[string]row{
		"all is well": {
			reason: "nothing is wrong",
			happen: func(g *game) { g.done.add(killManager) },
			want: []string{
				"what was done: 1 × kill the leading manager", "the same plan again: make chaos",
				"chaos: 0 transitions, 1 kills, 0 faults, 0 early flips, 0 lost, 0 leaked, 0 stuck, 0 wrong",
			},
		},
		"something of each": {
			reason: "the worst comes first, and what is left out is counted",
			happen: func(g *game) {
				g.report.find([]finding{{kind: stuck, text: "s"}, {kind: leaked, text: "k"}, {kind: lost, text: "l"}, {kind: wrong, text: "w"}})
				unasked(g, "e1")
				unasked(g, "e2")
				g.report.note("n")
			},
			fails: true,
			want: []string{
				"EARLY FLIP at ", "e1", "EARLY FLIP at ", "e2", "LOST: l", "and 3 more", "n", "logs are in",
				"chaos: 0 transitions, 0 kills, 0 faults, 2 early flips, 1 lost, 1 leaked, 1 stuck, 1 wrong",
			},
		},
		"not judged yet": {
			reason: "what waited for an explanation gets none any more",
			happen: func(g *game) {
				patch := g.journal.PatchReceived("m1", apiproxy.Write{
					Namespace: "ns", Name: "late", Received: time.Now(), Body: `[{"op":"remove","path":"/metadata/labels/example.com~1traffic"}]`,
				})
				unasked(g, "late")
				g.journal.Judge(time.Now())
				if broken := g.journal.Broken(); len(broken) > 0 {
					t.Errorf("judged before the answer to %v: %v", patch, broken)
				}
			},
			fails: true,
			want:  []string{`was cleared in state "Normal"`, "1 early flips"}, // by the patch without an answer, as far as is known
		},
		"a log that shows an early release": {
			reason: "the history finds what a person would be shown",
			log: `{"ts":"2026-11-22T10:00:01Z","logger":"history","msg":"registered","uid":"u","pod":"web","registry":"r","service":"s","endpoint":"10.0.0.1:80"}
{"ts":"2026-11-22T10:00:02Z","logger":"history","msg":"released","uid":"u","pod":"web","hook":"preDelete","rotation":"removed","by":"acknowledgement","entries":["r s 10.0.0.1:80"]}
`,
			fails: true, want: []string{
				"history: 2 lines in the managers' logs, 1 findings", "WRONG at ",
				"history: released before acknowledged: pod web: hook preDelete was released although r s 10.0.0.1:80 was in rotation", "1 wrong",
			},
		},
		"a manager died": {
			reason: "what it says last is not always the panic",
			log:    "one\nfatal error: all goroutines are asleep\n" + strings.Repeat("more\n", 10_000),
			fails:  true, want: []string{"fatal error: all goroutines"},
		},
	}, func(t *testing.T, tc row) {
		g, text := newEnded(t, tc.log)
		if tc.happen != nil {
			tc.happen(g)
		}
		err := g.verdict("make chaos", 3)
		expect.Equal(t, tc.fails, errors.Is(err, errFailed), "%s: it fails: %s", tc.reason, text)
		rest := text.String()
		for _, want := range tc.want {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("%s: %q is missing, or not after what must come before it, in\n%s", tc.reason, want, text)
			}
			rest = after
		}
	})
}

func TestTooLittle(t *testing.T) {
	t.Parallel()
	plenty := func(g *game) checker.Counts {
		g.length = enoughTime
		n := checker.Counts{Transitions: enoughTransitions, Reused: 1, Flips: enoughFlips, Met: map[string]int{}}
		for _, k := range lasting {
			n.Met[string(k)] = enoughMet
		}
		for _, k := range promisedKinds() {
			g.done.add(k)
		}
		for g.done.kills() < enoughKills {
			g.done.add(killManager)
		}
		return n
	}
	type row struct {
		change func(*game, *checker.Counts)
		want   string
	}
	expect.Each(t, map[string]row{
		"enough":                {change: func(*game, *checker.Counts) {}},
		"too few transitions":   {change: func(_ *game, n *checker.Counts) { n.Transitions-- }, want: "499 transitions"},
		"too few for twice":     {change: func(g *game, n *checker.Counts) { g.length *= 2; n.Transitions *= 2 }, want: "10 kills in 10m0s, and 20"},
		"no address used again": {change: func(_ *game, n *checker.Counts) { n.Reused = 0 }, want: "0 addresses"},
		"too few flips":         {change: func(_ *game, n *checker.Counts) { n.Flips-- }, want: "249 flips by managers"},
		"a fault that met nothing": {
			change: func(_ *game, n *checker.Counts) { delete(n.Met, string(netCut)) }, want: `"network: cut" met 0 calls or connections`,
		},
		"a kind never came": {change: func(g *game, _ *checker.Counts) { delete(g.done.done, wipeHalf) }, want: "not once in 5m0s: wipe half the registry"},
		"a short run":       {change: func(g *game, n *checker.Counts) { g.length--; n.Transitions = 0 }},
	}, func(t *testing.T, tc row) {
		g, _ := newEnded(t, "")
		n := plenty(g)
		tc.change(g, &n)
		g.tooLittle(n)
		got := strings.Join(g.report.other, "; ")
		if got == "" != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	})
}
