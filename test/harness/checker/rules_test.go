package checker

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestHandlers: what a handler releases or asserts in each state, for a handler of each combination of hooks.
func TestHandlers(t *testing.T) {
	t.Parallel()
	// The handlers' names are the first letters of their hooks.
	hooks := Hooks{PreNormal: {"n", "nu", "nd", "nud"}, InPlaceUpdate: {"u", "nu", "ud", "nud"}, PreDelete: {"d", "nd", "ud", "nud"}}
	type row struct {
		reason        string
		state         appspub.LifecycleStateType
		deleting      bool
		cleared, sets map[string]string
	}
	none := map[string]string{}
	expect.Each(t, map[string]row{
		"PreparingDelete": {
			"OpenKruise deletes the pod once no handler of preDelete is set", preparingDelete, false,
			map[string]string{"d": PreDelete, "nd": PreDelete, "ud": PreDelete, "nud": PreDelete, "n": "", "nu": ""}, none,
		},
		"PreparingUpdate": {
			"it updates the pod once no handler of inPlaceUpdate is set", preparingUpdate, false,
			map[string]string{"u": InPlaceUpdate, "nu": InPlaceUpdate, "ud": InPlaceUpdate, "nud": InPlaceUpdate, "n": ""}, none,
		},
		"Updating": {
			"the pod is back with all handlers of inPlaceUpdate, and has to be asked about before it is deleted", updating, false,
			map[string]string{"u": "", "nu": "", "ud": "", "nud": "", "n": ""}, map[string]string{"d": ""},
		},
		"Updated": {
			"both hooks are asserted together", updated, false, map[string]string{"u": "", "nu": "", "ud": "", "nud": "", "n": ""},
			map[string]string{"u": InPlaceUpdate, "nu": InPlaceUpdate, "ud": InPlaceUpdate, "nud": InPlaceUpdate, "n": PreNormal, "d": "", "nd": ""},
		},
		"PreparingNormal": {
			"the pod is armed before it is in rotation", preparingNormal, false, map[string]string{"n": ""},
			map[string]string{"n": PreNormal, "nu": PreNormal, "nd": PreNormal, "nud": PreNormal, "u": "", "d": "", "ud": ""},
		},
		"Normal": {
			"the pod stays, and OpenKruise must ask", normal, false, none,
			map[string]string{"n": "", "nu": "", "nd": "", "nud": "", "u": "", "d": "", "ud": ""},
		},
		"being deleted": {
			"nothing waits but its finalizers", normal, true,
			map[string]string{"n": PreDelete, "nu": PreDelete, "nd": PreDelete, "nud": PreDelete, "u": PreDelete, "d": PreDelete, "ud": PreDelete}, none,
		},
	}, func(t *testing.T, tc row) {
		cleared, set := map[string]string{}, map[string]string{}
		for _, h := range HandlersOf(hooks) {
			if hook, allowed := hooks.clearing(h, string(tc.state), tc.deleting); allowed {
				cleared[h] = hook
			}
			if hook, allowed := hooks.setting(h, string(tc.state), tc.deleting); allowed {
				set[h] = hook
			}
		}
		if !maps.Equal(cleared, tc.cleared) || !maps.Equal(set, tc.sets) {
			t.Errorf("%s: cleared %v and set %v, want %v and %v", tc.reason, cleared, set, tc.cleared, tc.sets)
		}
	})
}

// second is that moment of a history.
func second(n float64) time.Time {
	return time.Unix(100, 0).Add(time.Duration(n * float64(time.Second)))
}

// lived is a life, with the call of each of these seconds.
func lived(all ...change) life {
	return life{key: Key{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 80}, changes: all}
}

// done is a call that was done and acknowledged at once, and unanswered one of which the answer was lost.
func done(op Op, at float64) change {
	return change{name: "call " + string(op), op: op, done: second(at), answered: second(at)}
}

func unanswered(op Op, at float64) change {
	return change{name: "call " + string(op), op: op, done: second(at)}
}

func (l life) losesAt(at float64) life {
	l.lost = append(slices.Clone(l.lost), second(at))
	return l
}

// lists has a list show a state from then on.
func (l life) lists(at float64, state registry.State) life {
	l.shown = func(after, by time.Time, right func(registry.State) bool) bool {
		return second(at).After(after) && !second(at).After(by) && right(state)
	}
	return l
}

// TestReleasedEarly: an entry that is not out, or has not been for the whole drain, when the hook is released in second 10.
func TestReleasedEarly(t *testing.T) {
	t.Parallel()
	const drains, goes = 2 * time.Second, false
	type row struct {
		reason string
		life   life
		stays  bool
		want   string
	}
	expect.Each(t, map[string]row{
		"never in":        {"there is nothing to take out", lived(), goes, ""},
		"out and drained": {"all is well", lived(done(Register, 1), done(Deregister, 5)), goes, ""},
		"still in":        {"nobody has taken it out", lived(done(Register, 1)), goes, "is out since call register put it in"},
		"taken out later": {"that is too late", lived(done(Register, 1), done(Deregister, 11)), goes, "is out since"},
		"no answer":       {"the registry has acknowledged nothing", lived(done(Register, 1), unanswered(Deregister, 5)), goes, "is out since"},
		"never put in, and no answer": {
			"it may have been in before all that is known", lived(unanswered(Deregister, 5)), goes, "had not acknowledged call deregister that takes out",
		},
		"only out of service":                {"a pod that goes must be absent", lived(done(Register, 1), done(FailOver, 5)), goes, "is out since"},
		"out of service":                     {"a pod that stays need not be absent", lived(done(Register, 1), done(FailOver, 5)), true, ""},
		"put in again":                       {"the acknowledgement is of before", lived(done(Deregister, 1), done(Register, 5)), goes, "is out since"},
		"drains":                             {"a second is left", lived(done(Register, 1), done(Deregister, 9)), goes, "1s after web at"},
		"drained, repeated":                  {"the drain began with the first call", lived(done(Register, 1), done(FailOver, 5), done(Deregister, 9)), goes, ""},
		"lost, and listed":                   {"a list shows it", lived(done(Register, 1)).losesAt(5).lists(6, registry.Absent), goes, ""},
		"lost a moment ago":                  {"clients were given it until then", lived(done(Register, 1)).losesAt(9).lists(9.5, registry.Absent), goes, "1s after web at"},
		"listed before":                      {"it was put in since", lived(done(Register, 5)).lists(4, registry.Absent), goes, "is out since"},
		"listed as out":                      {"a pod that goes must be absent", lived(done(Register, 1)).lists(6, registry.OutOfService), goes, "is out since"},
		"listed as in":                       {"it is in", lived(done(Register, 1)).lists(6, registry.InService), true, "is out since"},
		"refused":                            {"it never came in", lived(change{name: "call register", op: Register}), goes, ""},
		"acknowledged later":                 {"that is too late", lived(done(Register, 1), change{name: "out", op: Deregister, done: second(5), answered: second(11)}), goes, "is out since"},
		"out a moment ago, and never put in": {"no client is known to have been given it", lived(done(Deregister, 9.5)), goes, ""},
	}, func(t *testing.T, tc row) {
		got := tc.life.releasedEarly(release{at: second(10), stays: tc.stays, drain: drains})
		if got == "" != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	})
}

// TestAssertedEarly: an entry that clients can't find when the hook is asserted in second 10.
func TestAssertedEarly(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		life   life
		lag    time.Duration
		want   string
	}
	expect.Each(t, map[string]row{
		"never told":              {"no call came", lived(), 0, "was never told of web"},
		"in":                      {"all is well", lived(done(Register, 5)), 0, ""},
		"no answer":               {"nothing is acknowledged", lived(unanswered(Register, 5)), 0, "had not acknowledged call register that put in"},
		"no answer, and repeated": {"the second was acknowledged", lived(unanswered(Register, 5), done(Register, 6)), 0, ""},
		"acknowledged, and repeated without an answer": {"it is in all the same", lived(done(Register, 5), unanswered(Register, 6)), 0, ""},
		"taken out":                  {"the last call counts", lived(done(Register, 5), unanswered(FailOver, 6)), 0, "call fail-over had taken out"},
		"taken out and back":         {"the acknowledgement is of before", lived(done(Register, 5), done(FailOver, 6), unanswered(Register, 7)), 0, "had not acknowledged"},
		"listed":                     {"a list shows it", lived(unanswered(Register, 5)).lists(6, registry.InService), 0, ""},
		"acknowledged later":         {"that is too late", lived(change{name: "in", op: Register, done: second(5), answered: second(11)}), 0, "had not acknowledged"},
		"listed as out":              {"it is not in", lived(unanswered(Register, 5)).lists(6, registry.OutOfService), 0, "had not acknowledged"},
		"in for long enough":         {"clients have noticed", lived(done(Register, 5)), 5 * time.Second, ""},
		"in too short":               {"a second is left", lived(done(Register, 5)), 6 * time.Second, "5s after the registry acknowledged web"},
		"in since before it was out": {"clients were told that it is out", lived(done(Register, 1), done(FailOver, 6), done(Register, 7)), 6 * time.Second, "3s after"},
		"repeated":                   {"clients have known since the first call", lived(done(Register, 3), done(Register, 9)), 5 * time.Second, ""},
		"answered in another order": {
			"clients have known since the first answer", lived(
				change{name: "first", op: Register, done: second(1), answered: second(9)}, change{name: "second", op: Register, done: second(2), answered: second(3)},
			), 5 * time.Second, "",
		},
	}, func(t *testing.T, tc row) {
		got := tc.life.assertedEarly(second(10), tc.lag)
		if got == "" != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	})
}

// TestWritten: what the registries must have of a pod, by its annotations and the configuration.
func TestWritten(t *testing.T) {
	t.Parallel()
	w := Written{
		Usual: "default", Books: map[string]string{"apps": "apps/app"}, Places: map[string]string{"placed": "place"},
		Metadata: map[string]string{"version": "{label:v}", "run": "chaos"},
	}
	type row struct {
		reason      string
		annotations map[string]string
		keys        []string
		told        Attributes
		drain       time.Duration
	}
	usual := map[string]string{"version": "3", "run": "chaos"}
	const inDefault = "web at 127.0.0.1:80 in registry default"
	expect.Each(t, map[string]row{
		"nothing chosen": {"the configuration decides", nil, []string{inDefault}, Attributes{Metadata: usual}, drain},
		"registries": {"one of them is kept under another name", map[string]string{annotationRegistries: "default,apps"},
			[]string{inDefault, "web at 127.0.0.1:80 in registry apps/app"}, Attributes{Metadata: usual}, drain},
		"a place": {"the service begins with it", map[string]string{annotationRegistries: "placed"},
			[]string{"east/web at 127.0.0.1:80 in registry placed"}, Attributes{Metadata: usual}, drain},
		"a network": {"the address is the network's", map[string]string{annotationAddress: "network/storage", annotationNetworks: `[{"name":"lan","ips":["1.1.1.1"]},{"name":"storage","ips":["172.0.0.1"]}]`},
			[]string{"web at 172.0.0.1:80 in registry default"}, Attributes{Metadata: usual}, drain},
		"no service": {"it has no entry", map[string]string{annotationServices: ""}, nil, Attributes{Metadata: usual}, drain},
		"a network that has no address yet": {"so has the pod", map[string]string{annotationAddress: "network/storage", annotationNetworks: `[{"name":"storage"}]`},
			[]string{"web at :80 in registry default"}, Attributes{Metadata: usual}, drain},
		"no network yet": {"the pod has no address yet", map[string]string{annotationAddress: "network/storage"},
			[]string{"web at :80 in registry default"}, Attributes{Metadata: usual}, drain},
		"metadata": {"its pairs win, and an empty one removes", map[string]string{annotationMetadata: "run=,team=a,weight=7"},
			[]string{inDefault}, Attributes{Weight: 7, Metadata: map[string]string{"version": "3", "team": "a"}}, drain},
		"warm-up and drain": {"the pod chooses both", map[string]string{annotationMetadata: "weight=100", annotationWarmUp: "6s", annotationDrain: "2s"},
			[]string{inDefault}, Attributes{Weight: 100, WarmUp: 6 * time.Second, Metadata: usual}, 2 * time.Second},
	}, func(t *testing.T, tc row) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"v": "3", "place": "east"}, Annotations: map[string]string{annotationServices: "web=80"}},
			Status:     corev1.PodStatus{PodIP: "127.0.0.1"},
		}
		maps.Copy(pod.Annotations, tc.annotations)
		var keys []string
		for _, k := range w.Keys(pod) {
			keys = append(keys, k.String())
		}
		expect.Equal(t, tc.keys, keys, "the keys")
		expect.Equal(t, tc.told, *w.Attributes(pod), "what clients are told")
		expect.Equal(t, tc.drain, DrainOf(pod, drain), "the drain")
	})
}

// TestConditions: each is its own, and only if it is true.
func TestConditions(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse},
	}}}
	if !IsReady(pod) || IsToEnd(pod) {
		t.Errorf("ready: %t, to end: %t, want true and false", IsReady(pod), IsToEnd(pod))
	}
}

// TestSetOn: a label counts with its value, and a finalizer by its name.
func TestSetOn(t *testing.T) {
	t.Parallel()
	hooks := Hooks{PreNormal: {traffic}, InPlaceUpdate: {updateGate, "example.io/update"}, PreDelete: {"example.io/delete"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"example.com/traffic": "online", "example.com/update-gate": "open"}, Finalizers: []string{"example.io/delete"},
	}}
	expect.Equal(t, map[string]bool{traffic: true, "example.io/delete": true}, SetOn(hooks, pod), "the handlers")
}

// TestSince: Kruise's stamp is earlier than what the watch brings.
func TestSince(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, stamp, want string }{
		{"the pod moved then", "2026-12-01T10:00:00Z", "2026-12-01T10:00:00Z"},
		{"Kruise's clock is ahead", "2026-12-01T10:00:09Z", "2026-12-01T10:00:05Z"},
		{"Kruise has not moved it yet", "", "2026-12-01T10:00:05Z"},
	} {
		at := time.Date(2026, 12, 1, 10, 0, 5, 0, time.UTC)
		expect.Equal(t, tc.want, Sighting{At: at, Stamp: tc.stamp}.since().Format(time.RFC3339), "%s", tc.reason)
	}
}

// TestBetween: which sighting shows a write of a version first.
func TestBetween(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason        string
		version, last uint64
		gone, want    bool
	}{
		{"it shows that one", 20, 20, false, true},
		{"those between were not seen", 15, 20, false, true},
		{"the one before shows that", 10, 20, false, false},
		{"a later one will show that", 21, 20, false, false},
		{"what ends a pod has a version that is never shown", 25, 20, true, true},
		{"the one before shows that, and the end does not", 10, 20, true, false},
	} {
		p := &podLog{sightings: []Sighting{{Version: 10}, {Version: tc.last, Gone: tc.gone}}}
		expect.Equal(t, tc.want, p.between(tc.version, 1), "version %d: %s", tc.version, tc.reason)
	}
}

// TestSoonest: zero is never.
func TestSoonest(t *testing.T) {
	t.Parallel()
	var never time.Time
	for _, tc := range [][3]time.Time{
		{never, never, never}, {never, second(1), second(1)}, {second(1), never, second(1)},
		{second(1), second(2), second(1)}, {second(2), second(1), second(1)},
	} {
		expect.Equal(t, tc[2], soonest(tc[0], tc[1]), "of %s and %s", tc[0], tc[1])
	}
}

// TestUntrue: what an entry tells clients of a pod with the weight 100 that is not so.
func TestUntrue(t *testing.T) {
	t.Parallel()
	told := func(change func(*registry.Instance)) registry.Instance {
		in := registry.Instance{Weight: 100, Metadata: map[string]string{"a": "b"}}
		change(&in)
		return in
	}
	type row struct {
		reason string
		in     registry.Instance
		warms  time.Duration
		warm   bool
		want   string
	}
	expect.Each(t, map[string]row{
		"all so":                 {"nothing is wrong", told(func(*registry.Instance) {}), 0, false, ""},
		"no metadata":            {"clients read it", told(func(in *registry.Instance) { in.Metadata = nil }), 0, false, "metadata"},
		"other metadata":         {"it is of before", told(func(in *registry.Instance) { in.Metadata["a"] = "c" }), 0, false, "metadata"},
		"a zone":                 {"nobody has written one", told(func(in *registry.Instance) { in.Zone = "z" }), 0, false, "metadata"},
		"a tag":                  {"nobody has written one", told(func(in *registry.Instance) { in.Tags = []string{"t"} }), 0, false, "metadata"},
		"too heavy":              {"it is above all of it", told(func(in *registry.Instance) { in.Weight = 101 }), time.Second, false, "weight"},
		"no weight":              {"in some registries that is as much as one", told(func(in *registry.Instance) { in.Weight = 0 }), time.Second, false, "weight"},
		"a part, and no warm-up": {"it grows no more", told(func(in *registry.Instance) { in.Weight = 10 }), 0, false, "weight"},
		"a part":                 {"it warms up", told(func(in *registry.Instance) { in.Weight = 10 }), time.Second, false, ""},
		"a part, and warm":       {"it has warmed up", told(func(in *registry.Instance) { in.Weight = 10 }), time.Second, true, "weight"},
	}, func(t *testing.T, tc row) {
		got := Attributes{Weight: 100, WarmUp: tc.warms, Metadata: map[string]string{"a": "b"}}.Untrue(tc.in, tc.warm)
		if rule, _, _ := strings.Cut(got, ":"); rule != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	})
}

func TestMostWeight(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason       string
		full         int
		after, warms time.Duration
		want         int
	}{
		{"it begins with 1 %", 300, 0, 10 * time.Second, 3},
		{"never with nothing", 7, 0, 10 * time.Second, 1},
		{"a tenth has not passed", 100, 999 * time.Millisecond, 10 * time.Second, 1},
		{"a tenth has passed", 100, time.Second, 10 * time.Second, 10},
		{"all has passed", 100, 10 * time.Second, 10 * time.Second, 100},
		{"there is no warm-up", 100, 0, 0, 100},
	} {
		expect.Equal(t, tc.want, (Attributes{Weight: tc.full, WarmUp: tc.warms}).most(tc.after), "%s", tc.reason)
	}
}

func TestUnleased(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		renewed []float64
		want    string
	}
	expect.Each(t, map[string]row{
		"never":      {"it is not the leader", nil, "it has never written the lease"},
		"later":      {"it did not lead yet", []float64{11}, "it has never written the lease"},
		"just so":    {"it leads", []float64{0, 9}, ""},
		"crossed":    {"its answers have overtaken each other", []float64{9, 1}, ""},
		"at its end": {"a call may be on its way for a moment", []float64{4.5}, ""},
		"long ago":   {"another one may lead", []float64{1, 3.5}, "it wrote the lease 6.5s before, which lasts 5s"},
	}, func(t *testing.T, tc row) {
		var renewed []time.Time
		for _, at := range tc.renewed {
			renewed = append(renewed, second(at))
		}
		expect.Equal(t, tc.want, unleased(second(10), renewed, 5*time.Second), "%s", tc.reason)
	})
}

// judgesWords has the story judge what clients are told, of a pod that says this.
func judgesWords(a Attributes) step {
	return func(s *story) { s.Cluster, s.pod.Told = cluster, &a }
}

// registers is a call that says this of the pod, and at which address if not its own.
func registers(weight int, metadata map[string]string) step {
	return registersAt(func(in *registry.Instance) { in.Weight, in.Metadata = weight, metadata })
}

func registersAt(change func(*registry.Instance)) step {
	return func(s *story) {
		in := s.instance()
		in.Namespace, in.Pod = testPod.Namespace, testPod.Name
		change(&in)
		c := s.receivedFor(Register, in)
		s.CallApplied(c, s.tick())
		s.CallAnswered(c, 204, s.tick())
	}
}

// TestWords: what clients are told of a pod, and where.
func TestWords(t *testing.T) {
	t.Parallel()
	plain, warms := judgesWords(Attributes{Weight: 7}), judgesWords(Attributes{Weight: 100, WarmUp: 10 * time.Second})
	red, blue := map[string]string{"team": "red"}, map[string]string{"team": "blue"}
	isRed := judgesWords(Attributes{Metadata: red})
	checkAll(t, []happening{
		{"as it is", "nothing is wrong", steps{plain, born, registers(7, nil), sets(traffic)}, ""},
		{"another weight", "clients send it too much", steps{plain, born, registers(100, nil), sets(traffic)}, "weight: call #1"},
		{"other metadata", "the pod has never said so", steps{isRed, born, registers(0, blue), sets(traffic)}, "metadata: call #1"},
		{"metadata of a moment ago", "the manager may not know yet", steps{isRed, born, seen, judgesWords(Attributes{Metadata: blue}), seen, registers(0, red), sets(traffic)}, ""},
		{"metadata of long ago", "it must know by then", steps{
			isRed, born, judgesWords(Attributes{Metadata: blue}), seen, waits(2 * reasonLasts), registers(0, red), sets(traffic),
		}, "metadata: call #1"},
		{"metadata of long ago, by a manager that was blind", "it can't know", steps{
			isRed, born, goesBlind, judgesWords(Attributes{Metadata: blue}), seen, waits(2 * reasonLasts), registers(0, red), sets(traffic), sees,
		}, ""},
		{"metadata of a moment later", "the watch may lag behind the manager's", steps{
			isRed, born, seen, registers(0, blue), sets(traffic), judges, judgesWords(Attributes{Metadata: blue}), seen,
		}, ""},
		{"metadata of much later", "no manager can have known", steps{
			isRed, born, seen, registers(0, blue), sets(traffic), waits(2 * watchLags), judgesWords(Attributes{Metadata: blue}), seen,
		}, "metadata: call #1"},
		{"of a pod that is never seen", "nothing tells what it says", steps{plain, registers(100, nil)}, ""},
		{"of a pod that is seen late", "what it said at the time was not seen", steps{plain, registers(100, nil), waits(2 * watchLags), born}, ""},
		{"of a pod that does not say it", "its application writes the entry too", steps{
			plain, func(s *story) { s.pod.Told = nil }, born, registers(100, nil), sets(traffic),
		}, ""},
		{"as another cluster's", "it would be taken for that one's", steps{
			plain, born, registersAt(func(in *registry.Instance) { in.Weight, in.Cluster = 7, "other" }), sets(traffic),
		}, `of cluster "other"`},
		{"an address that it has not", "clients are sent elsewhere", steps{
			plain, born, registers(7, nil), sets(traffic), registersAt(func(in *registry.Instance) { in.Weight, in.Address = 7, "10.9.9.9" }),
		}, "where: call #2 registered web at 10.9.9.9:8080 in registry default, and the pod belongs to web at " + testAddress},
		{"a place that it is not in", "clients of another place find it", steps{
			plain, born, registers(7, nil), sets(traffic), registersAt(func(in *registry.Instance) { in.Weight, in.Service = 7, "west/web" }),
		}, "where: call #2 registered west/web"},
		{"as another pod's", "it would be taken for that pod's", steps{
			plain, born, registersAt(func(in *registry.Instance) { in.Weight, in.Pod = 7, "pod-9" }), sets(traffic),
		}, "where: call #1 registered web at " + testAddress + ":8080 in registry default as that of pod ns/pod-9"},
		{"after a gap", "it may have said anything in it", steps{plain, born, gap, seen, registers(100, nil), sets(traffic)}, ""},
		{"begins cold", "it warms up", steps{warms, born, registers(1, nil), sets(traffic), waits(5 * time.Second), registers(50, nil)}, ""},
		{"begins warm", "clients send it all at once", steps{warms, born, registers(100, nil), sets(traffic)}, "weight: call #1"},
		{"warm long after it was taken out", "it begins when it is put in", steps{
			warms, born, calls(FailOver), waits(time.Minute), registers(100, nil), sets(traffic),
		}, "weight: call #2"},
		{"warm too soon", "half of its time has passed", steps{
			warms, born, registers(1, nil), sets(traffic), waits(5 * time.Second), registers(100, nil),
		}, "weight: call #2 registered web at " + testAddress + ":8080 in registry default with the weight 100"},
		{"warm after an update", "it begins anew", steps{
			warms, born, registers(1, nil), sets(traffic), moves(normal), waits(time.Minute), moves(preparingUpdate), takesOut(FailOver), clears(updateGate),
			moves(updating), moves(updated), registers(100, nil), sets(updateGate),
		}, "weight: call #3"},
		{"moves warm", "clients know it", steps{
			warms, born, registers(1, nil), sets(traffic), moves(normal), waits(time.Minute), belongsTo("second"), registers(100, nil),
		}, ""},
	})
}

// TestLag: clients of some registries take a while to notice.
func TestLag(t *testing.T) {
	t.Parallel()
	inSecond := func(s *story) { s.registry = "second" }
	lags := func(s *story) { s.ReaderLag = map[string]time.Duration{defaultRegistry: 2 * time.Second} }
	checkAll(t, []happening{
		{"asserted in time", "clients have noticed", steps{lags, born, calls(Register), waits(2 * time.Second), sets(traffic)}, ""},
		{"asserted at once", "no client knows it", steps{lags, born, calls(Register), waits(time.Second), sets(traffic)}, "of which clients take 2s to notice"},
		{"asserted where no one lags", "that is another registry's", steps{lags, inSecond, born, calls(Register), sets(traffic)}, ""},
		{"left before clients of the new one know it", "they find it nowhere", steps{
			lags, inSecond, inService, waits(2 * reasonLasts), belongsTo(defaultRegistry), calls(Register), callsIn("second", Deregister),
		}, "I9: call #3"},
	})
}

// TestOwnDrain: a pod may choose how long it drains.
func TestOwnDrain(t *testing.T) {
	t.Parallel()
	chooses := func(d time.Duration) step { return func(s *story) { s.pod.Drain = &d } }
	checkAll(t, []happening{
		{"longer", "the configuration's is not enough", steps{chooses(2 * drain), updateAsked, takesOut(FailOver), clears(updateGate)}, "the drain is 2s"},
		{"longer, and over", "it has waited", steps{chooses(2 * drain), updateAsked, takesOut(FailOver), waits(drain), clears(updateGate)}, ""},
		{"none", "it need not wait", steps{chooses(0), updateAsked, calls(FailOver), clears(updateGate)}, ""},
	})
}

// TestLease: who changes something leads.
func TestLease(t *testing.T) {
	t.Parallel()
	leased := func(s *story) { s.Lease = 15 * time.Second }
	renews := func(s *story) { s.Renewed("m1", s.tick()) }
	checkAll(t, []happening{
		{"leads", "it has just written the lease", steps{leased, renews, inService}, ""},
		{"never led", "another one may", steps{leased, born, calls(FailOver)}, "lease: call #1 by manager m1, and it has never written the lease"},
		{"led long ago", "another one may lead by now", steps{leased, renews, inService, waits(20 * time.Second), calls(Register)}, "lease: call #2"},
		{"asks without the lease", "anybody can ask", steps{leased, renews, inService, waits(20 * time.Second), lists(registry.InService)}, ""},
		{"is paused", "its calls are on their way", steps{leased, renews, inService, goesBlind, waits(20 * time.Second), calls(Register), sees}, ""},
		{"was just paused", "it does not know yet", steps{leased, renews, inService, goesBlind, waits(20 * time.Second), sees, calls(Register)}, ""},
		{"was paused long ago", "it has noticed", steps{leased, renews, inService, goesBlind, sees, waits(20 * time.Second), calls(Register)}, "lease: call #2"},
	})
}
