package plugin

import (
	"bytes"
	gocmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const configText = `
cluster: test
registry: {driver: consul, endpoint: "http://consul:8500"}
hooks: {owned: [example.com/*]}
drain: 30s
`

var now = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

const cloneSetText = `
apiVersion: apps.kruise.io/v1alpha1
kind: CloneSet
metadata: {name: web, namespace: prod, uid: set}
spec:
  selector: {matchLabels: {app: web}}
  lifecycle:
    preNormal: {labelsHandler: {example.com/in: "true"}}
    inPlaceUpdate: {labelsHandler: {example.com/update: "true", other.io/gate: "true"}}
    preDelete: {labelsHandler: {example.com/delete: "true"}}
  template:
    metadata: {labels: {app: web, example.com/delete: "true"}}
    spec: {containers: [{name: web, image: nginx, ports: [{containerPort: 80}]}]}
`

func lines(all []Finding, between string) (text string) {
	for _, f := range all {
		text += f.Object + between + f.Message + "\n"
	}
	return text
}

// ran runs the plugin with a standard input.
func ran(t *testing.T, input string, arguments ...string) (status int, out, errOut string) {
	t.Helper()
	streams, in, printed, problems := genericiooptions.NewTestIOStreams()
	in.WriteString(input)
	status = Run(t.Context(), "test", arguments, streams, nil)
	return status, printed.String(), problems.String()
}

func theCloneSet(t *testing.T, text string) *kruisev1alpha1.CloneSet {
	t.Helper()
	objects, err := (&options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(text)}}).readObjects("-")
	expect.NoError(t, err)
	return objects.workloads[0].Object.(*kruisev1alpha1.CloneSet)
}

// a scene is one pod of the CloneSet and what stands around it.
type scene struct {
	state   appspub.LifecycleStateType
	ready   bool
	labels  map[string]string
	record  lifecycle.Want
	out     time.Duration // how long ago it was taken out
	warning string
	hook    string        // of the warning, if not the pod's
	later   reason.Reason // of the Event after the warning, if any
	waits   *entries.Wait // why it waits by the manager's answer, if that could be asked
	says    entries.State // what the registry says, as the manager knows it
	at      string        // of which endpoint, if not the pod's
	foreign bool          // the configuration has other namespaces
	leads   time.Duration // how long ago the manager began to lead; the Events are a minute old
	none    string        // says that no manager leads
	undated bool          // the manager refuses drain
	asked   bool          // the pod drains until it is idle
	change  func(*corev1.Pod)
}

func (s scene) view(t *testing.T) Pod {
	t.Helper()
	text := configText
	if s.foreign {
		text += "namespaces: [pay]\n"
	}
	if s.undated {
		text = strings.ReplaceAll(text, "30s", "soon")
	}
	if s.asked {
		text = strings.ReplaceAll(text, "drain: 30s", "drain: {min: 5s, max: 10m, until: {path: /idle, port: 8080}}")
	}
	parsed, err := config.Parse([]byte(text), config.Limits{Refused: func(error) {}})
	expect.NoError(t, err)
	set := clusterstate.AsWorkload(theCloneSet(t, cloneSetText))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "prod", UID: "pod", Labels: map[string]string{appspub.LifecycleStateKey: string(s.state)},
			Annotations: map[string]string{appspub.LifecycleTimestampKey: now.Add(-time.Minute).Format(time.RFC3339)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web", UID: "set", Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web"}}},
		Status: corev1.PodStatus{PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{
			{Name: "web", Ready: s.ready, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}},
	}
	maps.Copy(pod.Labels, s.labels)
	if s.ready {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if s.record != "" {
		var outSince *time.Time
		if s.out > 0 {
			outSince = new(now.Add(-s.out))
		}
		hooks := lifecycle.HooksOf(set.ForDecision(), parsed.Hooks)
		record := lifecycle.NewRecord(lifecycle.PodOf(pod), hooks, s.record, []lifecycle.Key{
			{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 80},
		}, outSince)
		text, err := json.Marshal(record)
		expect.NoError(t, err)
		pod.Annotations[lifecycle.AnnotationRecord] = string(text)
	}
	w := &world{config: parsed, watches: parsed.MayWatch, now: now, leaderless: s.none, workloads: map[types.UID]*clusterstate.Workload{"set": set}, events: map[types.UID][]eventsv1.Event{}}
	if s.leads > 0 {
		w.leads = now.Add(-s.leads)
	}
	at := metav1.NewMicroTime(now.Add(-time.Minute))
	if s.warning != "" {
		hook := gocmp.Or(s.hook, map[appspub.LifecycleStateType]string{
			appspub.LifecycleStatePreparingNormal: "preNormal", appspub.LifecycleStatePreparingUpdate: "inPlaceUpdate",
		}[s.state], "preDelete")
		w.events["pod"] = append(w.events["pod"], eventsv1.Event{
			EventTime: at, Type: corev1.EventTypeWarning, Reason: s.warning, Note: reason.Reason(s.warning).WithRemedy("hook " + hook + " waits: connection refused"),
		})
	}
	if s.later != "" {
		w.events["pod"] = append(w.events["pod"], eventsv1.Event{EventTime: at, Type: s.later.Event(), Reason: string(s.later)})
	}
	if s.waits != nil {
		w.known.Waits = map[types.UID]entries.Wait{"pod": *s.waits}
	}
	if s.change != nil {
		s.change(pod)
	}
	p, managed := w.view(lifecycle.PodOf(pod))
	if !managed {
		t.Fatal("the pod is not managed")
	}
	if s.says != "" {
		p.Entries = []entries.Entry{{Registry: "default", Service: "web", Endpoint: gocmp.Or(s.at, "10.0.0.1:80"), State: s.says}}
	}
	return p
}

// pod is the pod of the view in the cluster.
func (s scene) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	kept := s.view(t).facts.pod
	pod := &corev1.Pod{ObjectMeta: kept.ObjectMeta, Status: corev1.PodStatus{Phase: kept.Status.Phase, PodIP: kept.Status.PodIP}}
	for _, c := range kept.Status.Conditions {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c.Type, Status: c.Status})
	}
	return pod
}

var armed = map[string]string{"example.com/in": "true", "example.com/update": "true", "example.com/delete": "true"}

// TestExplain holds what a pod's explanation is to testdata/explain.txt.
func TestExplain(t *testing.T) {
	t.Parallel()
	serving := scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService}
	starting := scene{state: appspub.LifecycleStatePreparingNormal}
	joining := scene{state: appspub.LifecycleStatePreparingNormal, ready: true}
	updated := scene{state: appspub.LifecycleStateUpdated, ready: true, record: lifecycle.OutOfService}
	updating := scene{state: appspub.LifecycleStateUpdating, record: lifecycle.OutOfService}
	deleting := scene{
		state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService,
		labels: map[string]string{"example.com/delete": "true"},
	}
	released := scene{state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.Absent}
	type change = func(*scene)
	with := func(s scene, changes ...change) scene {
		for _, of := range changes {
			of(&s)
		}
		return s
	}
	out := func(ago time.Duration) change { return func(s *scene) { s.record, s.out = lifecycle.Absent, ago } }
	warned := func(of reason.Reason) change { return func(s *scene) { s.warning = string(of) } }
	later := func(of reason.Reason) change { return func(s *scene) { s.later = of } }
	leads := func(since time.Duration) change { return func(s *scene) { s.leads = since } }
	has := func(state entries.State, at string) change { return func(s *scene) { s.says, s.at = state, at } }
	answered := func(w entries.Wait) change { return func(s *scene) { s.waits = &w } }
	pod := func(of func(*corev1.Pod)) change { return func(s *scene) { s.change = of } }
	skip := func(text string) change {
		return pod(func(p *corev1.Pod) { p.Annotations[lifecycle.AnnotationSkip] = text })
	}
	owned := func(version, kind string) change {
		return pod(func(p *corev1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.OwnerReferences[0].UID = version, kind, "other"
			p.Labels["pod-template-hash"] = "5d8f"
		})
	}
	asked := func(s *scene) { s.asked = true }
	left := answered(entries.Wait{
		Hook: "preDelete", Reason: string(reason.Draining),
		Message: "out of rotation since 10:00, drains until the pod is idle, at most until 10:10: 3 requests left",
	})
	foreign, undated := func(s *scene) { s.foreign = true }, func(s *scene) { s.undated = true }
	noLeader := func(s *scene) { s.none = "No manager leads: no hook is set or released." }
	pulls := pod(func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}
	})
	drains := answered(entries.Wait{Hook: "preDelete", Reason: string(reason.Draining), Message: "out of rotation since 10:00, drains for 30s"})
	timedOut := answered(entries.Wait{Hook: "preDelete", Reason: string(reason.RegistryUnavailable), Message: "no answer in 5s", Warning: true})
	gate := pod(func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].Ready = true
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/open"}}
	})
	guarded := pod(func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: now}, []string{lifecycle.GuardFinalizer}
	})
	detached := with(serving, func(s *scene) { s.record = lifecycle.OutOfService }, pod(func(p *corev1.Pod) {
		p.OwnerReferences, p.Labels[kruisev1alpha1.CloneSetInstanceID] = nil, "1"
		p.Annotations[lifecycle.AnnotationRecord] = strings.Replace(p.Annotations[lifecycle.AnnotationRecord], `{`, `{"detached":true,`, 1)
	}))
	type row struct {
		reason string
		scene  scene
	}
	captured := openCaptures(t, "explain")
	expect.Each(t, map[string]row{
		"in rotation":               {"nothing waits", with(serving, has(entries.In, ""))},
		"ready and out of rotation": {"a rollout is not done", with(serving, func(s *scene) { s.record = lifecycle.OutOfService })},
		"ready and out of rotation in an outage": {
			"the manager knows why", with(serving, warned(reason.RegistryUnavailable), func(s *scene) { s.record = lifecycle.OutOfService }),
		},
		"ready and not in rotation yet": {"no registry has acknowledged it", with(serving, func(s *scene) { s.record = "" })},
		"drains":                        {"how long is left", with(deleting, out(10*time.Second), has(entries.Out, ""))},
		"released":                      {"OpenKruise is next", released},
		"not ready yet":                 {"the registry is not what it waits for", with(starting, noLeader)},
		"not watched":                   {"the manager does not see it", with(deleting, foreign)},
		"not watched, at no hook":       {"the same", with(serving, foreign, func(s *scene) { s.labels = map[string]string{"example.com/in": "true"} })},
		"a change is under way":         {"the registry can't have acknowledged and not acknowledged the same", with(deleting, has(entries.Unacknowledged, ""))},
		"the change is acknowledged":    {"it is not yet written on the pod", with(deleting, has(entries.Out, ""))},
		"it has moved":                  {"the old instance and the new one are two", with(deleting, has(entries.Out, "10.0.0.9:80"))},
		"put in, and not yet written":   {"readers may not know yet", with(updated, has(entries.In, ""), func(s *scene) { s.record = "" })},
		"drained":                       {"the registry is not what it waits for", with(deleting, out(40*time.Second))},
		"drained, and given by another entry": {
			"the hook waits for that entry, and the drain counts since", with(deleting, out(40*time.Second), warned(reason.AlsoRegistersItself)),
		},
		"joins, and is given by another entry": {
			"what the registry acknowledges is not what it waits for", with(joining, warned(reason.AlsoRegistersItself)),
		},
		"leaves, and its application was never found": {"nothing tells where clients reach it", with(deleting, warned(reason.AppNotRegistered))},
		"drained, and something else keeps it":        {"the manager said so last", with(deleting, out(40*time.Second), warned(reason.NotConfirmed))},
		"guarded":                                     {"OpenKruise does not wait for a pod that is being deleted", with(deleting, guarded)},
		"of a Deployment":                             {"its workload is not gone", with(deleting, owned("apps/v1", "ReplicaSet"))},
		"of Kubernetes' StatefulSet":                  {"OpenKruise has one of the same name", with(deleting, owned("apps/v1", "StatefulSet"))},
		"of a CloneSet that is gone":                  {"Rollcall drives its kind", with(deleting, owned("apps.kruise.io/v1alpha1", "CloneSet"))},
		"detached from its CloneSet":                  {"a person has to end it", detached},
		"its service is claimed":                      {"no registry is asked until a person has acted", with(joining, warned(reason.ServiceNotAllowed))},
		"it leaves a service that is claimed":         {"it may leave all the same", with(deleting, warned(reason.ServiceNotAllowed))},
		"its patch is refused":                        {"a skip needs the same patch", with(deleting, warned(reason.APIServerFailed))},
		"a skip that is not read yet":                 {"the manager may be behind", with(deleting, skip("preDelete"))},
		"a skip while no manager leads":               {"nothing looks at the pod", with(deleting, skip("preDelete"), noLeader)},
		"a skip that is refused":                      {"the person has misspelt it", with(deleting, skip("predelete"))},
		"a skip of another hook":                      {"the pod does not wait at it", with(deleting, skip("inPlaceUpdate"))},
		"a skip after the update":                     {"the hook is the same, and the pod is to be put in service", with(updated, skip("inPlaceUpdate"))},
		"no manager leads":                            {"nothing reads what a skip writes", with(deleting, noLeader)},
		"no manager leads, and not watched":           {"the Lease is not that of the pod's manager", with(deleting, noLeader, foreign)},
		"drains, and drain is refused":                {"the manager goes by the configuration before", with(deleting, out(20*time.Second), undated)},
		"updated to an image that can't be pulled":    {"the rollout stands still", with(updating, pulls)},
		"updated to an image that can't be pulled, for long": {
			"what is on the pod is newer than the Event", with(updating, pulls, warned(reason.NotReady)),
		},
		"ready, and still Updating":                       {"OpenKruise may be down", with(updating, func(s *scene) { s.ready = true })},
		"a readiness gate that nothing sets":              {"no hook waits, and the pod is out", with(serving, gate, func(s *scene) { s.ready, s.record = false, lifecycle.OutOfService })},
		"not ready and kept":                              {"it is in rotation", with(serving, func(s *scene) { s.ready = false })},
		"let go":                                          {"whether the registry has acknowledged since is the manager's to say", with(released, warned(reason.RegistryUnavailable), later(reason.ReleasedUnacknowledged))},
		"the manager has answered":                        {"it knows more than its last Event says", with(deleting, warned(reason.RegistryUnavailable), timedOut)},
		"drains until idle":                               {"only the manager knows whether it is", with(deleting, out(10*time.Second), asked)},
		"drains until idle, and the manager has answered": {"what is left", with(deleting, out(10*time.Second), asked, left)},
		"drained until idle":                              {"the manager has yet to release the hook", with(deleting, out(11*time.Minute), asked)},
		"drains, and the manager has answered":            {"the time that is left is newer", with(deleting, out(10*time.Second), drains)},
		"drains, drain is refused, and the manager has answered": {
			"it knows the drain that is in force", with(deleting, out(20*time.Second), undated, drains),
		},
		"an Event":                     {"the manager knows best why it waits", with(deleting, warned(reason.RegistryUnavailable))},
		"an Event of another leader":   {"it can't say that it has passed", with(deleting, warned(reason.RegistryUnavailable), leads(30*time.Second))},
		"an Event of the leader":       {"the manager that leads has said so", with(deleting, warned(reason.RegistryUnavailable), leads(time.Hour))},
		"an Event that has passed":     {"it says nothing of now", with(deleting, warned(reason.RegistryUnavailable), later(reason.Resolved))},
		"an Event, and a skip":         {"what a person did once is not what it waits for", with(deleting, warned(reason.RegistryUnavailable), later(reason.ReleasedUnacknowledged))},
		"an Event, and another kind":   {"that does not end the reason", with(deleting, warned(reason.RegistryUnavailable), later(reason.EvictionHooked))},
		"an Event of another hook":     {"the pod has moved on, and what that hook waited for may not be what this one does", with(deleting, warned(reason.ServiceNotAllowed), func(s *scene) { s.hook = "preNormal" })},
		"an Event where it is foreign": {"it is of another manager, or of a time before", with(deleting, warned(reason.RegistryUnavailable), foreign)},
		"no Event":                     {"Events are kept for an hour only", deleting},
		"the manager knows no reason":  {"an Event may be behind", with(deleting, warned(reason.RegistryUnavailable), answered(entries.Wait{}))},
		"an answer of another hook": {
			"the pod has moved on", with(deleting, warned(reason.RegistryUnavailable), answered(entries.Wait{Hook: "inPlaceUpdate", Reason: string(reason.RegistryUnavailable)})),
		},
		"an answer at no hook": {
			"it is out of the registry only once the manager says so", with(released, answered(entries.Wait{Reason: string(reason.RegistryUnavailable), Message: "late"})),
		},
		"an answer about a read that failed": {
			"the manager could not read the workload, and so does not know the hook",
			with(deleting, answered(entries.Wait{Reason: string(reason.APIServerFailed), Message: "reading CloneSet shop/web: down", Warning: true})),
		},
		"an answer where it is foreign": {"it is another installation's", with(deleting, timedOut, foreign)},
	}, func(t *testing.T, c row) {
		var out strings.Builder
		(&options{IOStreams: genericiooptions.IOStreams{Out: &out}}).explain(c.scene.view(t), nil)
		captured.expect(t, out.String(), c.reason)
	})
}

// TestExplainWithoutAnAnswer says what is not shown, and why.
func TestExplainWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	pod := scene{state: appspub.LifecycleStatePreparingNormal}.view(t)
	(&options{IOStreams: genericiooptions.IOStreams{Out: &out}}).explain(pod, errors.New("the manager rollcall-1 is older than this plugin"))
	const want = "\nThe registries' entries are not shown, and the reason is only what the pod shows: the manager rollcall-1 is older than this plugin.\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("there is no %q in\n%s", want, &out)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	pods := []Pod{
		scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService}.view(t),
		scene{
			state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService, warning: "RegistryUnavailable",
			labels: map[string]string{"example.com/delete": "true"},
		}.view(t),
		scene{
			state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService, warning: "ServiceNotAllowed",
		}.view(t),
	}
	pods[0].Name, pods[2].Name = "web-0", "web-2"
	sortPods(pods)
	var out bytes.Buffer
	statusTable(pods, false, false, true).write(&out, terminal{})
	want := `NAMESPACE   NAME    STATE             IN STATE   READY   ROTATION   WAITS AT    REASON
prod        web-1   PreparingDelete   60s        true    In         preDelete   RegistryUnavailable
prod        web-2   Normal            60s        true    In         -           ServiceNotAllowed
prod        web-0   Normal            60s        true    In         -           -
`
	expect.Equal(t, want, out.String(), "status")
}

// TestStatusOfWatchedPods: status asks only for pods with a lifecycle state, as the manager does.
func TestStatusOfWatchedPods(t *testing.T) {
	t.Parallel()
	pod := scene{state: appspub.LifecycleStateNormal, labels: map[string]string{"app": "web"}}.pod(t)
	stateless, other := pod.DeepCopy(), pod.DeepCopy()
	stateless.Name, other.Name = "stateless", "other"
	delete(stateless.Labels, appspub.LifecycleStateKey)
	other.Labels["app"] = "other"
	cluster, _ := installed(t, configText, pod, stateless, other, theCloneSet(t, cloneSetText))
	selector, err := parseSelector("app=web")
	expect.NoError(t, err)
	s, err := cluster.status(t.Context(), "", selector)
	expect.NoError(t, err)
	if len(s.pods) != 1 || s.pods[0].Name != "web-1" {
		t.Errorf("it lists %v, want web-1", s.pods)
	}
}

// TestLint holds what is found and noted to testdata/lint.txt.
func TestLint(t *testing.T) {
	t.Parallel()
	replace := func(old, by string) string {
		text := strings.Replace(cloneSetText, old, by, 1)
		if text == cloneSetText {
			t.Fatalf("nothing to replace: %s", old)
		}
		return text
	}
	begins, ends := strings.Index(cloneSetText, "  lifecycle:\n"), strings.Index(cloneSetText, "  template:\n")
	withoutHooks := cloneSetText[:begins] + cloneSetText[ends:]
	const cloneSetKind, statefulSetKind = "v1alpha1\nkind: CloneSet", "v1beta1\nkind: StatefulSet"
	statefulSet := replace(cloneSetKind, statefulSetKind)
	daemonSetWith := func(hooks ...string) string {
		text := strings.Replace(cloneSetText[:begins], "CloneSet", "DaemonSet", 1) + "  lifecycle:\n"
		for _, hook := range hooks {
			text += "    " + hook + `: {labelsHandler: {example.com/delete: "true"}}` + "\n"
		}
		return text + strings.Replace(cloneSetText[ends:], "app: web,", "app: web, lifecycle.apps.kruise.io/state: Normal,", 1)
	}
	daemonSet := daemonSetWith("preDelete")
	unseen := strings.Replace(daemonSet, "lifecycle.apps.kruise.io/state: Normal, ", "", 1)
	portless := strings.Replace(withoutHooks, ", ports: [{containerPort: 80}]", "", 1)
	threeErrors := strings.Replace(portless, "labels: {", `annotations: {rollcall.dev/registries: foo, rollcall.dev/drain: "30"}, labels: {`, 1)
	namespaceWith := func(labels string) string {
		return "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: prod, labels: " + labels + "}\n"
	}
	const registersItself = "registeredBy: App"
	type row struct{ reason, configuration, other, text string }
	captured := openCaptures(t, "lint")
	expect.Each(t, map[string]row{
		"good": {reason: "another controller's handler beside Rollcall's is no fault", text: cloneSetText},
		"no owned handler": {
			reason: "Rollcall would leave its pods alone without a word on them", text: strings.ReplaceAll(cloneSetText, "example.com/", "acme.io/"),
		},
		"not watched": {reason: "its pods would wait for a manager that does not see them", text: cloneSetText, configuration: "namespaces: [pay]"},
		"several installations": {
			reason: "the first one watches it, and the other one has hooks of its own", text: cloneSetText, configuration: "namespaces: [prod]", other: strings.ReplaceAll(configText, "example.com", "acme.io") + "namespaces: [pay]",
		},
		"not watched by any": {
			reason: "there may be a third", text: cloneSetText, configuration: "namespaces: [shop]", other: configText + "namespaces: [pay]",
		},
		"one of several is refused": {
			reason: "it may be the one that watches it", text: cloneSetText, configuration: "namespaces: [shop]", other: configText + "namespaces: [Prod]",
		},
		"in another namespace": {
			reason: "kubectl says which one when the file is applied", text: replace("namespace: prod, ", ""), configuration: "namespaces: [pay]",
		},
		"no hooks, and not watched": {reason: "it is no concern of Rollcall's", text: withoutHooks, configuration: "namespaces: [pay]"},
		"no hooks":                  {reason: "it may be enrolled later, or be no concern of Rollcall's", text: withoutHooks},
		"no hooks, and three errors": {
			reason: "its author counts on Rollcall, and would see them once it is enrolled", text: threeErrors,
		},
		"no hooks, no port, and enroll on": {
			reason: "its namespace may be labelled", text: portless, configuration: "enroll: true",
		},
		"no hooks, no port, and a labelled namespace": {
			reason: "Rollcall would refuse to enroll it", text: portless + namespaceWith(`{rollcall.dev/enroll: "true"}`), configuration: "enroll: true",
		},
		"no hooks, no port, and a namespace without the label": {
			reason: "nobody has meant it for Rollcall", text: portless + namespaceWith("{}"), configuration: "enroll: true",
		},
		"no hooks, no port, and left out": {
			reason: "a person says so", configuration: "enroll: true",
			text: strings.Replace(portless, "namespace: prod, ", `namespace: prod, labels: {rollcall.dev/enroll: "false"}, `, 1),
		},
		"a StatefulSet without hooks, and an error": {
			reason: "what holds for a CloneSet holds for it", text: strings.Replace(threeErrors, cloneSetKind, statefulSetKind, 1),
		},
		"no hooks, and no port": {reason: "it can't be enrolled as it is", text: portless},
		"empty hooks, and an annotation of Rollcall's": {
			reason: "its author counts on Rollcall, and the API server refuses it with the component lint",
			text:   strings.Replace(strings.Replace(withoutHooks, "labels: {", "annotations: {rollcall.dev/drain: 5s}, labels: {", 1), "spec:", "spec:\n  lifecycle: {}", 1),
		},
		"empty hooks": {reason: "it may be enrolled later", text: strings.Replace(withoutHooks, "spec:", "spec:\n  lifecycle: {}", 1)},
		"a misspelt annotation": {
			reason: "Rollcall would drain for the configuration's time without a word", text: replace("labels: {app: web,", "annotations: {rollcall.dev/drian: 5s}, labels: {app: web,"),
		},
		"a misspelt annotation without hooks": {
			reason: "enrollment would not see it", text: strings.Replace(withoutHooks, "labels: {", "annotations: {rollcall.dev/drian: 5s}, labels: {", 1),
		},
		"an annotation on the CloneSet": {
			reason: "Rollcall reads it on pods", text: replace("namespace: prod, ", `namespace: prod, annotations: {rollcall.dev/drain: 5s}, `),
		},
		"key in the selector": {
			reason: "changing it would detach the pod", text: replace("matchLabels: {app: web}", `matchLabels: {app: web, example.com/delete: "true"}`),
		},
		"empty value": {
			reason: "Kruise can't tell it from a label that is missing", text: replace(`preDelete: {labelsHandler: {example.com/delete: "true"}}`, `preDelete: {labelsHandler: {example.com/delete: ""}}`),
		},
		"preNormal set by the template": {
			reason: "every pod would count as available at once", text: replace("labels: {app: web,", `labels: {app: web, example.com/in: "true",`),
		},
		"preNormal finalizer": {
			reason: "Kruise up to 1.8.4 can hang", text: replace(`preNormal: {labelsHandler: {example.com/in: "true"}}`, "preNormal: {finalizersHandler: [example.com/in]}"),
		},
		"no port": {reason: "there would be nothing to register", text: replace(", ports: [{containerPort: 80}]", "")},
		"annotation": {
			reason: "a drain that does not parse shows on each pod only", text: replace("metadata: {labels: {app: web,", "metadata: {annotations: {rollcall.dev/drain: soon}, labels: {app: web,"),
		},
		"list": {
			reason: "kubectl get -o yaml prints several objects as one", text: "kind: List\napiVersion: v1\nitems:\n- " + strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(cloneSetText, "example.com/", "acme.io/"), "\n", "\n  ")),
		},
		"v1beta1": {
			reason: "OpenKruise after 1.9 has CloneSets of this version too, with other fields beside the hooks", text: strings.Replace(replace("spec:", "spec:\n  updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceOnly}}"),
				"kruise.io/v1alpha1", "kruise.io/v1beta1", 1),
		},
		"a StatefulSet in order":    {reason: "OpenKruise stops at the first pod at a hook", text: statefulSet},
		"a StatefulSet in parallel": {reason: "it goes on", text: strings.Replace(statefulSet, "spec:", "spec:\n  podManagementPolicy: Parallel", 1)},
		"a StatefulSet that only starts in order": {
			reason: "a pod in PreparingNormal holds up no other one for longer than it takes", text: regexp.MustCompile("    (inPlace|preDel).*\n").ReplaceAllString(statefulSet, ""),
		},
		"a StatefulSet without hooks": {reason: "nobody can enroll it", text: strings.Replace(withoutHooks, cloneSetKind, statefulSetKind, 1)},
		"a StatefulSet with a key in its selector": {
			reason: "what holds for a CloneSet holds for it", text: strings.Replace(statefulSet, "matchLabels: {app: web}", `matchLabels: {app: web, example.com/delete: "true"}`, 1),
		},
		"a StatefulSet with an unknown field": {
			reason: "the API server would drop it", text: strings.Replace(statefulSet, "spec:", "spec:\n  podManagmentPolicy: Parallel", 1),
		},
		"a StatefulSet of Kubernetes":         {reason: "it has no hooks", text: strings.Replace(statefulSet, "apps.kruise.io/v1beta1", "apps/v1", 1)},
		"a DaemonSet with the state":          {reason: "Rollcall sees its pods from the start", text: daemonSet},
		"a DaemonSet that OpenKruise refuses": {reason: "its webhook does", text: daemonSetWith("preDelete", "inPlaceUpdate")},
		"a DaemonSet with preNormal":          {reason: "OpenKruise asks no such hook", text: daemonSetWith("preDelete", "preNormal")},
		"a DaemonSet in another state": {
			reason: "OpenKruise moves no pod of it to Normal", text: strings.Replace(daemonSet, "state: Normal", "state: PreparingNormal", 1),
		},
		"a DaemonSet without the state":     {reason: "Rollcall watches pods with a state", text: unseen},
		"a DaemonSet that registers itself": {reason: "its first state is PreparingDelete", text: unseen, configuration: registersItself},
		"a DaemonSet that says so": {
			reason: "the annotation wins", text: strings.Replace(unseen, "metadata: {labels", "metadata: {annotations: {rollcall.dev/registries: default=app}, labels", 1),
		},
		"a DaemonSet that says it does not": {
			reason: "the annotation wins", text: strings.Replace(unseen, "metadata: {labels", "metadata: {annotations: {rollcall.dev/registries: default=rollcall}, labels", 1), configuration: registersItself,
		},
		"a DaemonSet whose pods are not armed": {
			reason: "Rollcall arms no pod that it does not see", text: strings.Replace(unseen, `, example.com/delete: "true"}`, "}", 1), configuration: registersItself,
		},
		"a DaemonSet updated in place": {
			reason: "no hook is asked, and a person may take that", text: strings.Replace(daemonSet, "spec:", "spec:\n  updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: InPlaceIfPossible}}", 1),
		},
		"a DaemonSet as v1beta1": {reason: "OpenKruise 1.9 has both", text: strings.Replace(unseen, "v1alpha1", "v1beta1", 1)},
	}, func(t *testing.T, c row) {
		o := &options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(c.text)}}
		objects, err := o.readObjects("-")
		if err != nil {
			captured.expect(t, "refused: "+err.Error()+"\n", c.reason)
			return
		}
		configuration := configText + c.configuration
		if c.configuration == registersItself {
			configuration = strings.Replace(configText, "driver: consul", "driver: consul, "+registersItself, 1)
		}
		objects.labels = objects.ofInput
		objects.configs = []written{{"ConfigMap rollcall-config", []byte(configuration)}}
		if c.other != "" {
			objects.configs = append(objects.configs, written{"ConfigMap pay/rollcall-config", []byte(c.other)})
		}
		findings, notes := objects.lint()
		captured.expect(t, lines(findings, ": ")+lines(notes, ", note: "), c.reason)
	})
}

// TestLintInNamespace: -n is that of the objects without one, as for kubectl apply.
func TestLintInNamespace(t *testing.T) {
	t.Parallel()
	for namespace, c := range map[string]struct{ reason, objects, object, wants string }{
		"pay":   {"the configuration watches it", strings.Replace(cloneSetText, "namespace: prod, ", "", 1), "CloneSet pay/web", ""},
		"shop":  {"no manager serves the hooks", strings.Replace(cloneSetText, "namespace: prod, ", "", 1), "CloneSet shop/web", "namespace shop is not among the namespaces"},
		"":      {"it is not known", strings.Replace(cloneSetText, "namespace: prod, ", "", 1), "CloneSet web", ""},
		"other": {"the object says where it goes", cloneSetText, "CloneSet prod/web", "namespace prod is not among the namespaces"},
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "config.yaml")
		expect.NoError(t, os.WriteFile(file, []byte(configText+"namespaces: [pay]\n"), 0o600))
		status, out, problems := ran(t, c.objects, "lint", "-", "--config", file, "-n", namespace)
		found := out + problems
		if unwatched := c.wants != ""; !strings.Contains(found, c.object+", note: ") || !strings.Contains(found, c.wants) ||
			unwatched != strings.Contains(found, "is not among the namespaces") || (status == exitOK) == unwatched {
			t.Errorf("-n %q: status %d and\n%s\nwant %s and %q\nreason: %s", namespace, status, found, c.object, c.wants, c.reason)
		}
	}
}

// On a terminal the view is drawn in place; a pipe gets each view once.
func TestRolloutIsDone(t *testing.T) {
	t.Parallel()
	type status = kruisev1alpha1.CloneSetStatus
	type row struct {
		reason string
		status status
		pod    Pod
		want   string
	}
	expect.Each(t, map[string]row{
		"all updated": {
			"nothing is left to do", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3}, Pod{}, "",
		},
		"partition": {
			"two pods stay as they are", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 1, ExpectedUpdatedReplicas: 1}, Pod{}, "",
		},
		"one is old": {
			"it has its update before it", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 2, ExpectedUpdatedReplicas: 3}, Pod{}, "2 of 3 pods are updated and available",
		},
		"an old one is away": {
			"it was not kept", status{AvailableReplicas: 2, UpdatedAvailableReplicas: 1, ExpectedUpdatedReplicas: 1}, Pod{}, "2 of 3 pods are available",
		},
		"one waits": {
			"Rollcall holds it", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			Pod{Name: "web-1", Hook: lifecycle.InPlaceUpdate, Reason: reason.Draining}, "pod web-1 waits, reason Draining",
		},
		"one waits for OpenKruise": {
			"a budget keeps it from its deletion", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			Pod{Name: "web-1", Reason: reason.AwaitingOpenKruise}, "pod web-1 waits, reason AwaitingOpenKruise",
		},
		"one leaves": {
			"it is still there", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			Pod{Name: "web-1", State: terminating}, "pod web-1 is being deleted",
		},
		"the status is old": {
			"OpenKruise has not seen the change", status{ObservedGeneration: -1, AvailableReplicas: 3, UpdatedAvailableReplicas: 3}, Pod{},
			"OpenKruise has not seen the last change of the CloneSet",
		},
		"one is out of rotation": {
			"clients do not get it", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.OutOfService}.view(t),
			"pod web-1 waits, reason Acknowledgement",
		},
		"one was never in": {
			"OpenKruise counts it all the same", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed}.view(t), "pod web-1 waits, reason Acknowledgement",
		},
		"the registry is down": {
			"the manager says so", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			scene{
				state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.OutOfService, waits: &entries.Wait{Reason: "RegistryUnavailable", Message: "connection refused", Warning: true},
			}.view(t),
			"pod web-1 waits, reason RegistryUnavailable",
		},
		"nobody watches it": {
			"no manager puts it in", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.OutOfService, foreign: true}.view(t),
			"pod web-1 waits, reason NotWatched",
		},
		"all are in rotation": {
			"nothing is left to do", status{AvailableReplicas: 3, UpdatedAvailableReplicas: 3, ExpectedUpdatedReplicas: 3},
			scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService}.view(t), "",
		},
	}, func(t *testing.T, tc row) {
		set := &kruisev1alpha1.CloneSet{Status: tc.status}
		set.Spec.Replicas = new(int32(3))
		if got := (&rollout{cloneSet: set, pods: []Pod{tc.pod}}).left(); got != tc.want {
			t.Errorf("%q is left, want %q\nreason: %s", got, tc.want, tc.reason)
		}
	})
}

// TestRolloutTimesOut has a CloneSet of three whose third pod is available after a while, or never.
func TestRolloutTimesOut(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, want  string
		within, after time.Duration
		silent        bool
	}
	bubble.Each(t, map[string]row{
		"in time":                 {reason: "the watch has seen it done", within: time.Minute, after: 30 * time.Second},
		"never":                   {reason: "a script goes on", within: 10 * time.Minute, want: "the rollout of CloneSet prod/web is not done after 10m0s: 2 of 3 pods are available"},
		"the API server is quiet": {reason: "a call is no reason to wait longer", within: time.Minute, silent: true, want: "is not done after 1m0s: the API server has not answered"},
		"without a limit":         {reason: "a person ends it", after: 5 * time.Minute},
	}, func(t *testing.T, c row) {
		set := theCloneSet(t, cloneSetText)
		set.Spec.Replicas, set.Status.AvailableReplicas = new(int32(3)), 2
		cluster, _ := installed(t, configText, set)
		cluster.IOStreams = genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard}
		if c.silent {
			cluster.Client = interceptor.NewClient(cluster.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
					<-ctx.Done()
					return ctx.Err()
				},
			})
		}
		if c.after > 0 {
			time.AfterFunc(c.after, func() {
				set.Status.AvailableReplicas = 3
				expect.NoError(t, cluster.Update(t.Context(), set))
			})
		}
		began := time.Now()
		err := cluster.showRollout(t.Context(), "web", true, c.within)
		took := time.Since(began)
		expect.Error(t, c.reason, err, c.want)
		if timedOut := statusOf(err) == exitTimedOut; timedOut != (c.want != "") || timedOut && took != c.within {
			t.Errorf("%s: after %s it ends with %v", c.reason, took, err)
		}
	})
}

func TestScreen(t *testing.T) {
	t.Parallel()
	draw := func(terminal bool, texts ...string) string {
		var out bytes.Buffer
		s := screen{out: &out}
		if terminal {
			s.on.height = 24
		}
		for _, text := range texts {
			s.draw([]byte(text))
		}
		return out.String()
	}
	if got, want := draw(true, "a\nb\n", "a\nb\n", "c\n"), "a\nb\n\x1b[2A\x1b[Jc\n"; got != want {
		t.Errorf("on a terminal: got %q, want %q", got, want)
	}
	if got, want := draw(false, "a\nb\n", "a\nb\n", "c\n"), "a\nb\nc\n"; got != want {
		t.Errorf("into a pipe: got %q, want %q", got, want)
	}
	const drains, later, longer, done = "web-1   9s   Draining 1m30s\n", "web-1   10s   Draining 29s\n", "web-1   2m   Draining 4h\n", "web-1   1s   -\n"
	if got, want := draw(false, drains, later, longer, done), drains+done; got != want {
		t.Errorf("into a pipe, while time passes: got %q, want %q", got, want)
	}
	if got, want := draw(false, "web-24h5m   9s\n", "web-3d   9s\n"), "web-24h5m   9s\nweb-3d   9s\n"; got != want {
		t.Errorf("into a pipe, another pod: got %q, want %q", got, want)
	}
	if got := draw(true, drains, later); !strings.HasSuffix(got, later) {
		t.Errorf("on a terminal, while time passes: got %q", got)
	}
	if got, want := draw(false, "1 of 3 pods\n", "2 of 3 pods\n"), "1 of 3 pods\n2 of 3 pods\n"; got != want {
		t.Errorf("into a pipe, a number: got %q, want %q", got, want)
	}
}

// TestWatch: a watch of half an hour outlasts a request that fails, and tells a pod that is gone from it.
func TestWatch(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		fails  int
		err    error
		want   string
	}
	expect.Each(t, map[string]row{
		"a look fails":       {"the next may not", 2, errors.New("connection reset"), "one\nRetrying: connection reset. Last view:\none\nthree\n"},
		"the first one does": {"a person has something to correct", 1, errors.New("no such host"), "no such host"},
		"it is gone":         {"it will not come back", 2, &exitError{exitNotFound, errors.New("not found")}, "one\nnot found"},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			looks := 0
			err := (&options{IOStreams: genericiooptions.IOStreams{Out: &out}}).show(t.Context(), true, func(to, _ io.Writer, _ terminal) (bool, error) {
				if looks++; looks == tc.fails {
					return false, tc.err
				}
				fmt.Fprintln(to, []string{"", "one", "two", "three"}[looks])
				return looks == 3, nil
			})
			if err != nil {
				out.WriteString(err.Error())
			}
			if got := out.String(); got != tc.want {
				t.Errorf("got  %q\nwant %q: %s", got, tc.want, tc.reason)
			}
		})
	})
}

// A terminal breaks what is longer than it is wide, such as a note and the table of -o wide: that takes several of its rows.
func TestScreenOfLongLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := screen{out: &out, on: terminal{width: 10, height: 6}}
	for _, text := range []string{"head\n0123456789\n" + string(bad) + "01234567890\x1b[0m\n", strings.Repeat("01234567890\n", 4), "end\n"} {
		s.draw([]byte(text))
	}
	want := "head\n0123456789\n" + string(bad) + "01234567890\x1b[0m\n" +
		"\x1b[4A\x1b[J" + "01234567890\n01234567890\nand 2 more\n" +
		"\x1b[5A\x1b[J" + "end\n"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestWideText: a Chinese character takes two columns of a terminal, and an accent that is put over a letter none.
func TestWideText(t *testing.T) {
	t.Parallel()
	const chinese, accent = "注册中心不可用", "e\u0301"
	on := terminal{width: 10}
	for reason, c := range map[string]struct{ got, want string }{
		"a line is cut off where it no longer fits": {on.line(chinese, plain), "注册中心…\n"},
		"one that fits stays whole":                 {on.line("注册中心不", plain), "注册中心不\n"},
		"an accent takes no column":                 {on.line(strings.Repeat(accent, 10), plain), strings.Repeat(accent, 10) + "\n"},
		"words move to the next line":               {on.wrap("web 注册 中心 ok"), "web 注册\n中心 ok"},
		"the terminal breaks it":                    {fmt.Sprint(on.rows([]byte(chinese + "\n"))), "2"},
		"it keeps a character whole":                {fmt.Sprint(on.rows([]byte("a注册中心不a注册中心\n"))), "3"},
		"one as wide as the terminal is not broken": {fmt.Sprint(on.rows([]byte("注册中心不\n"))), "1"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %q, want %q", reason, c.got, c.want)
		}
	}
	var out bytes.Buffer
	table{head: []string{"NAME", "REASON", "AGE"}, rows: []row{
		{plain, []string{"支付", "x", "1s"}}, {plain, []string{"web", "不可用", "2s"}}, {plain, []string{accent, "", "3s"}},
	}}.write(&out, terminal{})
	expect.Equal(t, "NAME   REASON   AGE\n支付   x        1s\nweb    不可用   2s\n"+accent+"               3s\n", out.String(), "its columns do not begin one below the other")
}

// A canary's CloneSet often has the labels that another one selects by.
func TestRolloutCountsItsOwnPods(t *testing.T) {
	t.Parallel()
	serves := scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService}
	own, canary := serves.view(t), serves.view(t)
	canary.facts.pod.OwnerReferences[0].UID = "canary"
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{UID: "set"}}
	r := rolloutOf(set, []Pod{own, canary})
	if r.in != 1 || len(r.pods) != 1 {
		t.Errorf("got %d pods, %d of them in rotation, want its own", len(r.pods), r.in)
	}
}

// TestRolloutShows what keeps a pod at its revision, and which pods have the new one, whose label may have the hash alone.
func TestRolloutShows(t *testing.T) {
	t.Parallel()
	var pods []Pod
	for _, revision := range []string{"web-64f7c", "64f7c", "web-9b2d5"} {
		p := scene{state: appspub.LifecycleStateNormal, ready: true}.view(t)
		p.facts.pod.Labels["controller-revision-hash"] = revision
		pods = append(pods, p)
	}
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}
	set.Status.UpdateRevision = "web-64f7c"
	for want, strategy := range map[string]kruisev1alpha1.CloneSetUpdateStrategy{
		"(least so far 0)\n":                        {Partition: new(intstr.FromInt32(0))},
		"(least so far 0), paused\n":                {Paused: true},
		"(least so far 0), paused, partition 30%\n": {Paused: true, Partition: new(intstr.FromString("30%"))},
	} {
		set.Spec.UpdateStrategy = strategy
		var out strings.Builder
		(&rollout{cloneSet: set, pods: pods}).write(&out, terminal{}, 0)
		if got := out.String(); !strings.Contains(got, want) || strings.Count(got, " new ") != 2 || strings.Count(got, " old ") != 1 {
			t.Errorf("it shows\n%swant %q, and two of three pods new", got, want)
		}
	}
}

// TestStatusOfNoPod says where it looked, since a person may have looked in the wrong place.
func TestStatusOfNoPod(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]status{
		"Rollcall manages no pods in namespace prod; use -A for all namespaces\n":                                                         {namespace: "prod"},
		"Rollcall manages no pods in namespace prod with the labels app=web; use -A for all namespaces\n":                                 {namespace: "prod", selector: "app=web"},
		"Rollcall manages no pods in the cluster with the labels a=b: enroll a CloneSet, or add hooks with keys of rollcall.dev/ to it\n": {selector: "a=b"},
	} {
		var out, notes strings.Builder
		expect.NoError(t, s.write(&out, &notes, terminal{}, new(form), s.namespace == ""))
		if notes.String() != want || out.String() != "" {
			t.Errorf("it notes %q beside %q, want %q", &notes, &out, want)
		}
	}
}

// TestStatusForScripts says beside the output why entries are missing in it.
func TestStatusForScripts(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"", "json", "yaml"} {
		var out, notes strings.Builder
		s := status{pods: []Pod{{Name: "web-0"}}, unknown: errors.New("no manager leads")}
		expect.NoError(t, s.write(&out, &notes, terminal{}, &form{name: output}, false))
		if !strings.Contains(notes.String(), "no manager leads") || strings.Contains(out.String(), "no manager leads") {
			t.Errorf("-o %s: notes %q beside\n%s", output, &notes, &out)
		}
	}
}

// TestLintOfAConfigurationAlone: that it has no CloneSet must not read as if nothing was checked.
func TestLintOfAConfigurationAlone(t *testing.T) {
	t.Parallel()
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rollcall-config}\ndata:\n  config.yaml: |" +
		strings.ReplaceAll(configText, "\n", "\n    ") + "\n"
	path := filepath.Join(t.TempDir(), "config.yaml")
	expect.NoError(t, os.WriteFile(path, []byte(configText), 0o600))
	for _, arguments := range [][]string{{"lint", "-"}, {"lint", "--config", path}} {
		status, out, errOut := ran(t, text, arguments...)
		if want := "no problems found in 0 workloads and 1 configuration\n"; status != 0 || out != want {
			t.Errorf("%q: status %d and %q, want %q\n%s", arguments, status, out, want, errOut)
		}
	}
}

// TestLintShowsTheLine in the whole input, where a person looks for it.
func TestLintShowsTheLine(t *testing.T) {
	t.Parallel()
	before := strings.Repeat("---\n"+cloneSetText, 2)
	for text, after := range map[string]int{"kind: List\n items: []\nlast: line\n": 2, "kind: List: List\n": 1} {
		_, err := (&options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(before + "---\n" + text)}}).readObjects("-")
		want := fmt.Sprintf("standard input: decoding an object: error converting YAML to JSON: yaml: line %d: ", strings.Count(before, "\n")+1+after)
		expect.Error(t, "it is in the third document", err, want)
	}
}

// TestLintReadsLists: the items of one that an API server printed have no type of their own.
func TestLintReadsLists(t *testing.T) {
	t.Parallel()
	const typed = "apiVersion: apps.kruise.io/v1alpha1\nkind: CloneSetList\nitems:\n- "
	item := strings.TrimSpace(strings.ReplaceAll(cloneSetText, "\n", "\n  "))
	_, untyped, _ := strings.Cut(item, "kind: CloneSet\n  ")
	for reason, text := range map[string]string{
		"kubectl get prints it":  "apiVersion: v1\nkind: List\nitems:\n- " + item,
		"kubectl apply takes it": typed + item, "kubectl get --raw prints it": typed + untyped,
	} {
		objects, err := (&options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(text)}}).readObjects("-")
		if err != nil || len(objects.workloads) != 1 || objects.workloads[0].GetName() != "web" {
			t.Errorf("got %+v, error %v, want CloneSet web: %s", objects, err, reason)
		}
	}
}

// TestLintWithAConfiguration of its own for the CloneSets: the ConfigMap in the input is none the less held to what the manager takes.
func TestLintWithAConfiguration(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, beside, file, want, note string
		status                           int
	}
	expect.Each(t, map[string]row{
		"nothing beside": {reason: "the file is all there is", want: "no problems found in 1 workload and 1 configuration\n"},
		"one beside that watches it": {
			reason: "the file alone counts", beside: configText + "namespaces: [prod]", file: "namespaces: [pay]", status: exitFailed,
			want: "CloneSet prod/web: namespace prod is not among the namespaces in the configuration, so",
		},
		"another beside": {
			reason: "the file says which one counts", want: "no problems found in 1 workload and 2 configurations\n",
			beside: strings.ReplaceAll(configText, "example.com", "acme.io"),
		},
		"one without a driver": {
			reason: "the plugin can't know the manager's, and says what is missing none the less", status: exitFailed,
			beside: strings.ReplaceAll(configText, "driver: consul, ", ""),
			want:   "ConfigMap rollcall-config: registry.driver: Required value: set the name of a driver, such as consul\n",
		},
		"a timeout that outlives the lease beside": {
			reason: "the manager would refuse it", status: exitFailed,
			beside: strings.ReplaceAll(configText, "driver: consul,", "driver: consul, timeout: 10s,"),
			want:   `ConfigMap rollcall-config: registry.timeout: Invalid value: "10s": set less than 6.3s`,
		},
		"two fields that are wrong": {
			reason: "each has a line of its own", status: exitFailed,
			beside: strings.NewReplacer("30s", "soon", "driver: consul, ", "").Replace(configText),
			want: "ConfigMap rollcall-config: registry.driver: Required value: set the name of a driver, such as consul\n" +
				"ConfigMap rollcall-config: drain: Invalid value",
		},
		"one without an endpoint beside": {
			reason: "the manager would refuse it, in these words", status: exitFailed,
			beside: strings.ReplaceAll(configText, `, endpoint: "http://consul:8500"`, ""),
			want:   "ConfigMap rollcall-config: registry.endpoint: Invalid value: is missing; set the registry's address\n",
		},
		"one without a scheme beside": {
			reason: "the same", status: exitFailed, beside: strings.ReplaceAll(configText, "http://", ""),
			want: "ConfigMap rollcall-config: registry.endpoint: Invalid value: must begin with http:// or https://",
		},
		"another driver beside": {
			reason: "it may have been added in Go", beside: strings.ReplaceAll(configText, "driver: consul", "driver: acme"),
			want: "no problems found in 1 workload and 2 configurations\n",
			note: `ConfigMap rollcall-config, note: registry: driver "acme" is not built in: run the manager that has it with --check-config` + "\n",
		},
		"a misspelt driver beside": {
			reason: "no manager would start", beside: strings.ReplaceAll(configText, "driver: consul", "driver: consull"), status: exitFailed,
			want: `ConfigMap rollcall-config: registry: driver "consull" is not built in: did you mean "consul"?` + "\n",
		},
		"no YAML beside": {
			reason: "a person finds it by the line", beside: strings.ReplaceAll(configText, "drain", " drain"), status: exitFailed,
			want: "ConfigMap rollcall-config: (file): Invalid value: use valid YAML: line 4 of the configuration: did not find expected key\n",
		},
		"a wrong one beside": {
			reason: "the manager would refuse it", beside: strings.ReplaceAll(configText, "30s", "soon"), status: exitFailed,
			want: `ConfigMap rollcall-config: drain: Invalid value: "soon": set a duration`,
		},
	}, func(t *testing.T, c row) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		expect.NoError(t, os.WriteFile(path, []byte(configText+c.file), 0o600))
		text := cloneSetText
		if c.beside != "" {
			text += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: rollcall-config}\ndata:\n  config.yaml: |" +
				strings.ReplaceAll(c.beside, "\n", "\n    ") + "\n"
		}
		status, out, errOut := ran(t, text, "lint", "-", "--config", path)
		if status != c.status || !strings.HasPrefix(out, c.want) {
			t.Errorf("%s: status %d and\n%s%swant status %d and %q", c.reason, status, out, errOut, c.status, c.want)
		}
		for _, note := range []string{
			c.note, "CloneSet prod/web, note: spec.lifecycle.inPlaceUpdate has label other.io/gate=true", "configuration, note: options, files,",
		} {
			if !strings.Contains(errOut, note) {
				t.Errorf("the standard error has %q, want %q", errOut, note)
			}
		}
	})
}
