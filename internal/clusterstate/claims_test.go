package clusterstate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// Two namespaces, of which the first is older, have a pod each, and workloads in both use the name web.
const (
	first, second = "shop", "mall"
	lands         = 10 * time.Second
)

// scene is claims to which steps happen.
type scene struct {
	*Claims

	rules *Rules
	now   time.Time
}

type (
	step  func(*scene)
	steps []step
)

func play(steps ...step) *scene {
	s := &scene{Claims: newClaims(), rules: &Rules{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.reconfigured(registries(), s.now)
	s.observed(map[string]namespaceFacts{
		first: {created: s.now.Add(-time.Hour), labels: labels.Set{"of": first}}, second: {created: s.now}, "a-twin": {}, "z-twin": {},
	}, map[lifecycle.Service]map[string]bool{"web": {first: true, second: true}}, s.now)
	for _, step := range steps {
		step(s)
	}
	return s
}

func registries() []lifecycle.Source {
	return append(sources("default", "other"), lifecycle.Source{Registry: "default", Writer: lifecycle.Application})
}

func podOf(namespace string) lifecycle.PodID {
	return lifecycle.PodID{UID: types.UID(namespace), NamespacedName: types.NamespacedName{Namespace: namespace, Name: "web-1"}}
}

// at is the instance of the namespace's pod in a registry, under a name.
func at(registry, name, namespace string) lifecycle.Key {
	return lifecycle.Key{Registry: registry, Service: lifecycle.Service(name), Address: "address of " + namespace, Port: 80}
}

func web(namespace string) lifecycle.Key { return at("default", "web", namespace) }

func (s *scene) use(namespace string) Use {
	return Use{Rules: s.rules, Pod: podOf(namespace), Service: "web", Now: s.now}
}

func takes(namespace string) step {
	return func(s *scene) { s.Take(s.use(namespace), false, web(namespace), s.now.Add(lands)) }
}

// tries has a pod registered again that keeps the name.
func tries(namespace string) step {
	return func(s *scene) { s.Take(s.use(namespace), true, web(namespace), s.now.Add(lands)) }
}

func joins(namespace string) step { return acknowledged(namespace, web(namespace)) }

func acknowledged(namespace string, in lifecycle.Key) step {
	return func(s *scene) { s.Acknowledged(podOf(namespace), in) }
}

func removed(namespace string, in lifecycle.Key) step {
	return func(s *scene) { s.Removed(podOf(namespace).UID, in, s.now) }
}

func misses(namespace string) step {
	return func(s *scene) { s.Missed(podOf(namespace).UID, web(namespace), s.now) }
}

func leaves(namespace string) step {
	return func(s *scene) { s.Forget(podOf(namespace).UID, s.now) }
}

func passes(d time.Duration) step { return func(s *scene) { s.now = s.now.Add(d) } }

// lists has the registry default list the pods of the namespaces.
func lists(namespaces ...string) step {
	return func(s *scene) {
		var entries []Entry
		for _, namespace := range namespaces {
			entries = append(entries, Entry{Key: web(namespace), Pod: podOf(namespace)})
		}
		s.Listed(List{Registry: "default", Entries: entries, AsOf: s.now}, s.now)
	}
}

// records has the records of pods read, of which the namespace's has one.
func records(namespace string, want lifecycle.Want, in lifecycle.Key) step {
	return func(s *scene) {
		s.recorded([]*lifecycle.Pod{lifecycle.PodOf(recordedPod(namespace, want, in))}, registries(), s.now)
	}
}

func recordedPod(namespace string, want lifecycle.Want, in lifecycle.Key) *corev1.Pod {
	id := podOf(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id.Name, UID: id.UID}}
	text, _ := json.Marshal(lifecycle.Record{Stamp: lifecycle.StampOf(lifecycle.PodOf(pod)), Want: want, Instances: []lifecycle.Key{in}})
	pod.Annotations = map[string]string{lifecycle.AnnotationRecord: string(text)}
	return pod
}

func recordedIn(registry, namespace string) step {
	return records(namespace, lifecycle.InService, at(registry, "web", namespace))
}

func recorded(namespace string) step { return recordedIn("default", namespace) }

// reads has the cache read anew: web is used by workloads of the namespaces.
func reads(namespaces ...string) step {
	return func(s *scene) {
		users := map[string]bool{}
		for _, namespace := range namespaces {
			users[namespace] = true
		}
		s.observed(s.namespaces, map[lifecycle.Service]map[string]bool{"web": users}, s.now)
	}
}

// configures has all other registries leave the configuration.
func configures(registries ...string) step {
	return func(s *scene) { s.reconfigured(sources(registries...), s.now) }
}

func sources(registries ...string) []lifecycle.Source {
	all := make([]lifecycle.Source, len(registries))
	for i, name := range registries {
		all[i].Registry = name
	}
	return all
}

// refusal is why a pod of the namespace may not use web, empty where it may.
func (s *scene) refusal(namespace string) string {
	refused, _ := s.Ask(s.use(namespace))
	if refused == nil {
		return ""
	}
	if refused.Calm {
		return "calm " + string(refused.Reason) + ": " + refused.Message
	}
	return string(refused.Reason) + ": " + refused.Message
}

// begins: what begins with nothing is empty.
func begins(got, want string) bool { return strings.HasPrefix(got, want) && (want != "" || got == "") }

const (
	isRegistered = "its pods are registered under it; set another name in annotation rollcall.dev/services"
	isKept       = "its pods were registered under it, and it keeps the name until 2026-01-02T03:09:05Z"
	isRecorded   = "its pods have a record of being registered under it"
	isOlder      = "a workload there uses it, and the namespace was created before " + second
)

func TestWhoseANameIs(t *testing.T) {
	t.Parallel()
	inOther, inCapitals, inApp := at("other", "web", second), at("default", "WEB", second), web(second).By(lifecycle.Application)
	recordedByApp := records(second, lifecycle.InService, inApp)
	left := func(then ...step) steps { return append(steps{joins(second), leaves(second)}, then...) }
	tried := func(then ...step) steps { return append(steps{tries(second)}, then...) }
	joinsOther := acknowledged(second, inOther)
	type row struct {
		reason string
		steps  steps
		// owner has the name, because of that, and the other namespace may not use it.
		owner, because string
	}
	expect.Each(t, map[string]row{
		"nothing is registered":     {"the older namespace's workload may yet have pods", nil, first, isOlder},
		"registered":                {"the age counts where no pod is", steps{joins(second)}, second, isRegistered},
		"by another case of it":     {"Eureka's clients take both for one", steps{acknowledged(second, inCapitals)}, second, isRegistered},
		"about to be":               {"of two that come at once, one gets it", steps{reads(), takes(second)}, second, isRegistered},
		"refused":                   {"no Register is made", steps{joins(second), takes(first)}, second, isRegistered},
		"registered in both":        {"the older comes first", steps{joins(second), tries(first)}, first, isRegistered},
		"recorded":                  {"nothing else tells what the registry has", steps{recorded(second)}, second, isRecorded},
		"recorded, and not so":      {"a tenant can write a record", steps{recorded(first), joins(second)}, second, isRegistered},
		"recorded as absent":        {"so it is", steps{records(second, lifecycle.Absent, web(second))}, first, isOlder},
		"recorded in no registry":   {"there is none of the name", steps{recordedIn("x", second)}, first, isOlder},
		"a record before an answer": {"the answer counts", steps{recorded(second), joins(second), lists()}, second, isRegistered},
		"a record after an answer":  {"the answer counts", steps{joins(second), recorded(second), lists()}, second, isRegistered},

		"left":                       {"a workload that is made again has its name", left(), second, isKept},
		"left the registry":          {"the same", steps{joins(second), removed(second, web(second))}, second, isKept},
		"left another registry":      {"it is in this one", steps{joinsOther, joins(second), removed(second, inOther)}, second, isRegistered},
		"left, and recorded":         {"a tenant can write a record", left(recorded(first)), second, isKept},
		"left, and registered":       {"whoever is registered stays", left(tries(first)), first, isRegistered},
		"left too long ago":          {"the workload does not come back", left(passes(KeptFor)), first, isOlder},
		"left, and made again":       {"it is registered again", left(passes(KeptFor-1), joins(second), passes(KeptFor)), second, isRegistered},
		"left, and read anew":        {"it is kept all the same", left(reads(first)), second, isKept},
		"left before it was certain": {"it may never have been in", steps{tries(second), leaves(second)}, first, isOlder},
		"left, by a record":          {"it may never have been in", steps{recorded(second), leaves(second)}, first, isOlder},

		"listed":                      {"a manager before this one registered it", steps{lists(second)}, second, isRegistered},
		"listed no more":              {"the registry says so", steps{lists(second), lists()}, first, isOlder},
		"lost":                        {"it is put back", steps{joins(second), lists(second), lists()}, second, isRegistered},
		"recorded, and not listed":    {"the list says who is registered", steps{recorded(second), lists()}, first, isOlder},
		"recorded after a list":       {"the list said who is registered", steps{lists(), recorded(second)}, first, isOlder},
		"in a registry not yet asked": {"the record is all there is", steps{recordedIn("other", second), lists()}, second, isRecorded},
		"a Register that can land":    {"the list is of before", tried(lists(second), passes(lands-1), lists()), second, isRegistered},
		"one that can't any more":     {"the list tells what came of it", tried(passes(lands), lists()), first, isOlder},
		"one that is made again":      {"that one can land", tried(passes(1), tries(second), passes(lands-1), lists()), second, isRegistered},

		"an application's, by a record":  {"the reconciler has yet to ask about the pod", steps{recordedByApp, lists()}, second, isRecorded},
		"listed before the record":       {"no list has it", steps{lists(), recordedByApp}, second, isRecorded},
		"listed after the record":        {"the pod was asked about since", steps{recordedByApp, passes(1), lists()}, first, isOlder},
		"an application's, by an answer": {"no list has it", steps{acknowledged(second, inApp), passes(1), lists()}, second, isRegistered},

		"an application's, missed": {"it has not registered, and may never do so", steps{
			reads(), takes(second), misses(second), reads(first, second),
		}, first, isOlder},
		"missed after an answer": {"it registers anew", steps{joins(second), takes(second), misses(second)}, second, isRegistered},
		"missed after a list":    {"the same", steps{lists(second), takes(second), misses(second)}, second, isRegistered},

		"recorded in one that leaves": {"no list will tell what it has", steps{recorded(second), configures("other")}, first, isOlder},
		"recorded there, and in another": {"it is still in that", steps{
			recorded(second), joinsOther, configures("other"),
		}, second, isRegistered},
		"registered in one that leaves": {"the pod is still in there", steps{joins(second), configures("other")}, second, isRegistered},
	}, func(t *testing.T, tc row) {
		s := play(tc.steps...)
		for _, namespace := range []string{first, second} {
			want := ""
			if namespace != tc.owner {
				want = `ServiceNotAllowed: service "web" belongs to namespace ` + tc.owner + ": " + tc.because
			}
			if got := s.refusal(namespace); !begins(got, want) {
				t.Errorf("%s is refused with %q, want %q: %s", namespace, got, want, tc.reason)
			}
		}
	})
}

func TestWhoMayUseAName(t *testing.T) {
	t.Parallel()
	given := func(a service.Allowance) step {
		a.Names = []service.NamePattern{"web"}
		return func(s *scene) { s.rules.Services.Allowed = service.Policy{a} }
	}
	to := func(namespace service.NamespacePattern) step {
		return given(service.Allowance{Namespaces: []service.NamespacePattern{namespace}})
	}
	labelled := labels.SelectorFromSet(labels.Set{"of": first})
	shared := func(namespaces ...service.NamespacePattern) step {
		return func(s *scene) {
			names := []service.NamePattern{"web"}
			s.rules.Services.Allowed = service.Policy{
				{Namespaces: namespaces, Names: names, Shared: true}, {Namespaces: []service.NamespacePattern{first, second}, Names: names},
			}
		}
	}
	type row struct {
		reason string
		steps  steps
		asks   string
		want   string
	}
	expect.Each(t, map[string]row{
		"one that is not seen yet":    {"its age and labels are not known", nil, "unseen", "calm ManagerNotReady: the manager's cache does not have "},
		"not seen, of a shared name":  {"its labels may decide", steps{shared("*")}, "unseen", "calm ManagerNotReady"},
		"one that no workload is in":  {"no other has the name", steps{reads()}, second, ""},
		"the first of two as old":     {"the answer is the same after a restart", steps{reads("a-twin", "z-twin")}, "a-twin", ""},
		"the second of two as old":    {"the same", steps{reads("a-twin", "z-twin")}, "z-twin", "ServiceNotAllowed"},
		"not given":                   {"the policy comes first", steps{to(second)}, first, "ServiceNotAllowed: service.allowed"},
		"shared":                      {"both may have it", steps{shared("*"), joins(first)}, second, ""},
		"shared, and used":            {"both may have it", steps{shared("*")}, second, ""},
		"shared by others alone":      {"they have it, and the name is theirs", steps{shared(second), joins(second)}, first, "ServiceNotAllowed: service \"web\" belongs to namespace mall"},
		"had by one that shares not":  {"it did not agree", steps{shared(second, "a-twin"), joins(first)}, second, "ServiceNotAllowed"},
		"given to one, and not seen":  {"the policy comes first", steps{shared("a-twin")}, "z-twin", "ServiceNotAllowed: service.allowed"},
		"given to two":                {"one has it", steps{to("*")}, second, "ServiceNotAllowed"},
		"given by its label":          {"", steps{given(service.Allowance{Selector: labelled})}, first, ""},
		"given no more to the owner":  {"it is free for those who may have it", steps{joins(first), to(second)}, second, ""},
		"used in one that is gone":    {"it comes last", steps{reads("gone")}, first, ""},
		"had in one that is gone too": {"that comes last", steps{joins("gone"), tries(first)}, first, ""},
		"taken in one that is gone":   {"its pods have yet to leave", steps{joins("gone")}, first, "ServiceNotAllowed"},
	}, func(t *testing.T, tc row) {
		if got := play(tc.steps...).refusal(tc.asks); !begins(got, tc.want) {
			t.Errorf("refused with %q, want %q: %s", got, tc.want, tc.reason)
		}
	})
}

func TestWhenTheAnswerChangesByItself(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		steps  steps
		asks   string
		after  time.Duration
	}{
		"registered": {"an event tells", steps{joins(second)}, first, 0},
		"kept":       {"no event tells when it is free", steps{joins(second), leaves(second), passes(KeptFor - 1)}, first, 1},
		"not seen":   {"it is on its way to the cache", nil, "unseen", recheck},
	} {
		s := play(tc.steps...)
		if refused := s.Take(s.use(tc.asks), false, web(tc.asks), s.now); refused == nil || refused.After != tc.after {
			t.Errorf("%s: got %+v, want %v: %s", name, refused, tc.after, tc.reason)
		}
	}
}

// TestWhoKeepsAName: a pod that is certain to be registered stays, whatever the answer.
func TestWhoKeepsAName(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		is     step
		want   bool
	}{
		"acknowledged":      {"", joins(second), true},
		"listed":            {"", lists(second), true},
		"in capitals":       {"it is the same name", acknowledged(second, at("default", "WEB", second)), true},
		"under another":     {"that is another name", acknowledged(second, at("default", "api", second)), false},
		"about to be":       {"it may fail", tries(second), false},
		"recorded":          {"a tenant can write it", recorded(second), false},
		"another pod is in": {"it has to leave and come back", joins(first), false},
	} {
		s := play(tc.is)
		if _, got := s.Ask(s.use(second)); got != tc.want {
			t.Errorf("%s: counts as registered: %t: %s", name, got, tc.reason)
		}
	}
}

func TestClaimsForget(t *testing.T) {
	t.Parallel()
	inOther := at("other", "web", first)
	joinsOther, leavesOther := acknowledged(first, inOther), removed(first, inOther)
	for name, tc := range map[string]struct {
		steps              steps
		pods, holds, names int
	}{
		"in two registries, again": {steps{joins(first), joinsOther, joins(first)}, 1, 2, 1},
		"left one of them, again":  {steps{joins(first), joinsOther, leavesOther, leavesOther}, 1, 1, 1},
		"left, and kept":           {steps{joins(first), leaves(first)}, 0, 0, 1},
		"left, and not kept":       {steps{lists(first), lists()}, 0, 0, 0},
		"kept no more":             {steps{joins(first), leaves(first), passes(KeptFor), reads()}, 0, 0, 0},
		"kept no more by one":      {steps{joins(first), joins(second), leaves(first), passes(KeptFor), reads()}, 1, 1, 1},
	} {
		s := play(tc.steps...)
		pods, names := s.Size()
		holds := len(s.holds[podOf(first).UID]) + len(s.holds[podOf(second).UID])
		if pods != tc.pods || holds != tc.holds || names != tc.names {
			t.Errorf("%s: remembers %d pods, %d holds and %d names, want %+v", name, pods, holds, names, tc)
		}
	}
}

// TestNamesThatClientsTakeForOne have one owner.
func TestNamesThatClientsTakeForOne(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"web", "WEB"}, {"payments", "paymentſ"}, {"STRASSE", "straße"}, {"STRAẞE", "straße"}, {"files", "ﬁles"}} {
		if claimKey(lifecycle.Service(names[0])) != claimKey(lifecycle.Service(names[1])) {
			t.Errorf("%s and %s can have two owners, and Eureka's clients compare them in capitals", names[0], names[1])
		}
	}
	if claimKey("größe") == claimKey("grosse") {
		t.Error("an ö is no o")
	}
}
