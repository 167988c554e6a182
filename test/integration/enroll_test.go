package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const enrollLabel = "rollcall.dev/enroll"

// fleetReplicas is how many pods each CloneSet of the fleet has.
const fleetReplicas = 5

// fleetSize is how many CloneSets are enrolled at once: a few, or as many as ROLLCALL_FLEET says.
func fleetSize(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ROLLCALL_FLEET")
	if text == "" {
		return 20
	}
	size, err := strconv.Atoi(text)
	expect.NoError(t, err)
	return size
}

// unhooked takes away the hooks that a style has.
func unhooked(set *kruisev1alpha1.CloneSet) { set.Spec.Lifecycle = nil }

// TestEnrollment: a namespace's label gives a fleet its hooks, and its removal takes them back. No pod is touched but for labels,
// no CloneSet gets a new revision, no pod leaves the registry, no request is lost, and all is as it was in the end.
func TestEnrollment(t *testing.T) {
	t.Parallel()
	const namespace = "enrollment"
	config := defaultConfiguration(env.registry.URL(), namespace)
	config["enroll"] = true
	s := newScenario(t, startManager(t, namespace, config), env.registry, labels, namespace)
	install(t, "enroll", namespace)
	s.troubled, s.port = true, podserver.Use(t, env.client)
	f := &fleet{scenario: s, size: fleetSize(t), pods: map[string]string{}, specs: map[string]string{}}
	f.create()
	client, stop := sendRequests(t, func(context.Context) ([]registry.Entry, error) { return s.registry.serving(t, namespace), nil })
	began := time.Now()
	f.labelNamespace("true")
	f.awaitPods("to be armed and registered", func(pod *corev1.Pod) error {
		if pod.Labels[lifecycle.LabelPreDelete] != "true" || pod.Labels[lifecycle.LabelPreNormal] != "true" {
			return errors.New("it is not armed")
		}
		if !s.registry.gives(t, namespace, pod) {
			return errors.New("clients are not given it")
		}
		return nil
	})
	f.expectUntouched()
	f.expectOnlyRegistered()
	f.await("an Event on "+othersSet, func() error {
		return f.hasEvent(nil, corev1.EventTypeWarning, "NotEnrolled", "spec.lifecycle.preDelete has finalizer somebody.example/gate, which is not Rollcall's")
	})
	f.expectSpecs(func(name string) bool { return name == othersSet })

	f.labelNamespace("false")
	f.awaitPods("to be let go", func(pod *corev1.Pod) error {
		if pod.Labels[lifecycle.LabelPreDelete] != "" || pod.Labels[lifecycle.LabelPreNormal] != "" {
			return errors.New("it is armed")
		}
		return nil
	})
	f.expectUntouched()
	f.expectOnlyRegistered()
	f.expectSpecs(func(string) bool { return true })
	for _, set := range f.sets() {
		if slices.ContainsFunc(set.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "rollcall-enroll" }) {
			t.Errorf("CloneSet %s still has fields that the manager wrote", set.GetName())
		}
	}
	stop()
	tally := client.Tally()
	f.Expect(tally.Requests >= len(f.pods) && tally.Failed == 0, "%s: %v", tally, client.Failures())
	if f.Failed() {
		return
	}
	f.Logf("fleet: %d CloneSets, %d pods enrolled and taken back in %s: 0 new revisions, 0 restarts; %s",
		f.size, len(f.pods), time.Since(began).Round(time.Second), tally)
}

// othersSet is a CloneSet with somebody else's hook, which is left alone.
const othersSet = "others"

// expectSpecs: the specs of these CloneSets are byte for byte what they were before.
func (f *fleet) expectSpecs(of func(name string) bool) {
	f.Helper()
	for _, set := range f.sets() {
		if name, got := set.GetName(), specOf(f.T, &set); of(name) && got != f.specs[name] {
			f.Errorf("CloneSet %s: spec is %s, and was %s", name, got, f.specs[name])
		}
	}
}

// fleet is many CloneSets of one namespace.
type fleet struct {
	*scenario

	size int
	// pods holds the revision of each pod by its UID, and specs the spec of each CloneSet by its name.
	pods, specs map[string]string
}

func (f *fleet) create() {
	f.Helper()
	for i := range f.size {
		set := f.style.load(f.T)
		set.Namespace, set.Name = f.ns, fmt.Sprintf("member-%03d", i)
		set.Spec.Selector.MatchLabels = map[string]string{"app": f.ns, "member": set.Name}
		set.Spec.Template.Labels = map[string]string{"app": f.ns, "member": set.Name}
		replicas(fleetReplicas)(set)
		annotated(servicesKey, fmt.Sprintf("%s=%d", f.ns, f.port))(set)
		unhooked(set)
		f.must(f.k8s.Create(f.Context(), set))
	}
	others := f.style.load(f.T)
	others.Namespace, others.Name = f.ns, othersSet
	replicas(0)(others)
	others.Spec.Lifecycle = &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"somebody.example/gate"}}}
	f.must(f.k8s.Create(f.Context(), others))
	f.awaitPods("to be ready", func(pod *corev1.Pod) error {
		if !lifecycle.IsReady(lifecycle.PodOf(pod)) {
			return errors.New("it is not")
		}
		return nil
	})
	for _, pod := range f.Pods() {
		f.pods[string(pod.UID)] = pod.Labels["controller-revision-hash"]
	}
	for _, set := range f.sets() {
		f.specs[set.GetName()] = specOf(f.T, &set)
	}
}

func (s *scenario) labelNamespace(value string) {
	s.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	s.must(s.k8s.Patch(s.Context(), namespace, kube.Merge(`{"metadata":{"labels":{%q:%q}}}`, enrollLabel, value)))
}

// awaitPods returns once all pods are there and it holds for each.
func (f *fleet) awaitPods(what string, missing func(*corev1.Pod) error) {
	f.Helper()
	f.await("the pods "+what, func() error {
		pods := f.Pods()
		if len(pods) != f.size*fleetReplicas {
			return fmt.Errorf("there are %d", len(pods))
		}
		for _, pod := range pods {
			if err := missing(pod); err != nil {
				return fmt.Errorf("%s: %w", pod.Name, err)
			}
		}
		return nil
	})
}

// expectUntouched: the pods are those from before, of the same revisions, and no container has restarted.
func (f *fleet) expectUntouched() {
	f.Helper()
	for _, pod := range f.Pods() {
		if revision := pod.Labels["controller-revision-hash"]; f.pods[string(pod.UID)] != revision {
			f.Errorf("pod %s is new, or has another revision than before: %s", pod.Name, revision)
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				f.Errorf("pod %s has restarted", pod.Name)
			}
		}
	}
	for _, set := range f.sets() {
		status := set.Object["status"].(map[string]any)
		if status["currentRevision"] != status["updateRevision"] {
			f.Errorf("CloneSet %s has a new revision: %v", set.GetName(), status)
		}
	}
}

// expectOnlyRegistered: since the beginning the registry was asked to register each pod, once, and for nothing else. So no client
// has lost a pod, and all that were given it could reach it.
func (f *fleet) expectOnlyRegistered() {
	f.Helper()
	changes := map[string]int{}
	for _, call := range f.registry.Answers(f.ns, "") {
		if call.Op != fakeregistry.OpGet {
			changes[string(call.Op)+" "+call.Instance.UID]++
		}
	}
	for uid := range f.pods {
		if n := changes["Register "+uid]; n != 1 {
			f.Errorf("pod %s was registered %d times", uid, n)
		}
	}
	if len(changes) != len(f.pods) {
		f.Errorf("the registry was asked for more than to register %d pods: %v", len(f.pods), changes)
	}
	f.Logf("%d CloneSets, %d pods: %d changes in the registry, none of which takes a pod out", f.size, len(f.pods), len(changes))
}

// sets are the CloneSets as the API server has them.
func (f *fleet) sets() []unstructured.Unstructured {
	f.Helper()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(kruisev1alpha1.SchemeGroupVersion.WithKind("CloneSetList"))
	f.must(f.k8s.List(f.Context(), &list, client.InNamespace(f.ns)))
	return list.Items
}

func specOf(t *testing.T, set *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(set.Object["spec"])
	expect.NoError(t, err)
	return string(text)
}

// storedSet is the scenario's CloneSet as the API server has it.
func storedSet(s *scenario) *unstructured.Unstructured {
	s.Helper()
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(kruisev1alpha1.SchemeGroupVersion.WithKind("CloneSet"))
	s.must(s.k8s.Get(s.Context(), s.key, set))
	return set
}

// install applies a component as it ships, but for what belongs to the Deployment. A policy is bound to the one namespace.
func install(t *testing.T, component, namespace string) {
	t.Helper()
	for _, object := range readComponent(t, component) {
		if binding, is := object.(*admissionv1.ValidatingAdmissionPolicyBinding); is {
			binding.Spec.MatchResources = inNamespace(namespace)
		}
		if parameters, is := object.(*corev1.ConfigMap); is {
			parameters.Data["owned"] = "example.com/* example.io/*"
		}
		expect.NoError(t, client.IgnoreAlreadyExists(env.client.Create(t.Context(), object)))
	}
}

// TestEnrolByHand: a person enrolls one CloneSet and takes it back; what can't work and what is another's stays as it is.
func TestEnrolByHand(t *testing.T) {
	t.Parallel()
	const namespace = "enrol-by-hand"
	config := defaultConfiguration(env.registry.URL(), namespace)
	s := newScenario(t, startManager(t, namespace, config), env.registry, labels, namespace)
	s.troubled = true
	s.must(s.k8s.Create(s.Context(), config.configMap(s.ns)))
	s.Create(replicas(2), unhooked)
	s.AwaitPods(2)
	name := s.key.Name
	person := s.Kubectl("admin", env.cluster.Config())
	person.Expect(3, "enroll nothing", "has no CloneSet nothing")
	person.Expect(1, "enroll", "specify names of CloneSets")

	s.Edit(func(set *kruisev1alpha1.CloneSet) { set.Spec.Template.Spec.Containers[0].Ports = nil })
	person.Expect(1, "enroll "+name, "CloneSet "+name+" is not enrolled", "no port")
	s.Edit(func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		set.Spec.Lifecycle = lifecycle.Enrolled()
		set.Spec.Lifecycle.PreDelete.LabelsHandler = map[string]string{"somebody.example/gate": "shut"}
		set.Spec.Lifecycle.PreNormal, set.Spec.Lifecycle.InPlaceUpdate = nil, nil
	})
	person.Expect(1, "enroll "+name, "somebody.example/gate", "is not Rollcall's")
	s.Edit(unhooked)
	before := specOf(s.T, storedSet(s))

	person.Expect(0, "enroll --all", name+" enrolled")
	s.awaitArmed()
	person.Expect(0, "enroll "+name, "unchanged: it already has Rollcall's hooks")
	person.Expect(0, "enroll --undo "+name, name+" unenrolled")
	person.Expect(0, "enroll --undo "+name, "unchanged: this command added no hooks")
	after := specOf(s.T, storedSet(s))
	s.Expect(after == before, "spec is %s, and was %s", after, before)
}

// TestEnrollmentAfterAReload: a CloneSet that the configuration kept from being enrolled has its hooks once another one is in force.
func TestEnrollmentAfterAReload(t *testing.T) {
	t.Parallel()
	const namespace = "enrollment-reload"
	config := defaultConfiguration(env.registry.URL(), namespace)
	config["enroll"] = true
	s := newScenario(t, startManager(t, namespace, config), env.registry, labels, namespace)
	s.troubled = true
	install(s.T, "enroll", s.ns)
	s.Create(replicas(1), unhooked, func(set *kruisev1alpha1.CloneSet) { set.Spec.Template.Spec.Containers[0].Ports = nil })
	s.AwaitPods(1)
	s.labelNamespace("true")
	s.await("an Event on the CloneSet", func() error { return s.hasEvent(nil, corev1.EventTypeWarning, "NotEnrolled", "no port") })

	config["service"] = map[string]any{"name": "{label:app}", "port": 9999}
	s.must(s.manager.Configure(config))
	s.awaitArmed()
}

// awaitArmed returns once all pods have the label of enrollment's preDelete.
func (s *scenario) awaitArmed() {
	s.Helper()
	s.until("the pods to be armed", func() bool {
		return !slices.ContainsFunc(s.Pods(), func(pod *corev1.Pod) bool { return pod.Labels[lifecycle.LabelPreDelete] != "true" })
	})
}

// TestLintPolicy: the API server refuses hooks that can't work, as config/components/lint ships, and warns of handlers of others,
// or refuses them too where its parameters say so.
func TestLintPolicy(t *testing.T) {
	t.Parallel()
	needsNewer(t, "ValidatingAdmissionPolicy")
	const namespace, strict, bare = "lint-policy", "lint-policy-strict", "lint-policy-bare"
	install(t, "lint", namespace)
	installLint(t, strict, map[string]string{"owned": "example.com/*\n\texample.net/*\n", "unowned": "Refuse"})
	installLint(t, bare, nil)
	for _, name := range []string{namespace, strict, bare} {
		expect.NoError(t, env.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	hook := func(set *kruisev1alpha1.CloneSet) map[string]string {
		return set.Spec.Lifecycle.PreDelete.LabelsHandler
	}
	cases := []lintCase{
		{"selector", "changing the label detaches the pod", func(set *kruisev1alpha1.CloneSet) {
			hook(set)["example.com/also"] = "true"
			set.Spec.Selector.MatchLabels["example.com/also"] = "true"
			set.Spec.Template.Labels["example.com/also"] = "true"
		}, "label example.com/also is in spec.selector", false},
		{"empty", "OpenKruise takes any pod for hooked", func(set *kruisev1alpha1.CloneSet) {
			hook(set)["example.com/empty"] = ""
		}, "label example.com/empty has no value", false},
		{"two values", "no value satisfies both", func(set *kruisev1alpha1.CloneSet) {
			hook(set)["example.com/unready-blocker-inplace"] = "other"
		}, "two hooks want one label at different values", false},
		{"preNormal finalizer", "OpenKruise misses it", func(set *kruisev1alpha1.CloneSet) {
			set.Spec.Lifecycle.PreNormal = lifecycle.Enrolled().PreNormal
			set.Spec.Lifecycle.PreNormal.FinalizersHandler = []string{"example.com/in"}
		}, "can miss that finalizer example.com/in was added", false},
		{"another's", "another's hooks are not judged", func(set *kruisev1alpha1.CloneSet) {
			set.Spec.Lifecycle.PreDelete.LabelsHandler = map[string]string{"somebody.example/empty": ""}
		}, "warning: somebody.example/empty is not a handler that Rollcall owns (rollcall.dev/* example.com/* example.io/*)", false},
		{"another's, where there are no others", "no controller sets it", func(set *kruisev1alpha1.CloneSet) {
			set.Namespace = strict
			hook(set)["somebody.example/gate"] = "true"
		}, "somebody.example/gate is not a handler that Rollcall owns (rollcall.dev/* example.com/* example.net/*), so Rollcall never sets it", true},
		{"keys in lines and with tabs", "each of them is Rollcall's", func(set *kruisev1alpha1.CloneSet) {
			set.Namespace = strict
			hook(set)["example.net/gate"] = "true"
		}, "", false},
		{"no settings", "Rollcall's own keys need none", func(set *kruisev1alpha1.CloneSet) {
			set.Namespace = bare
			set.Spec.Lifecycle = lifecycle.Enrolled()
			hook(set)["rollcall.dev/empty"] = ""
		}, "label rollcall.dev/empty has no value", false},
		{"born in rotation", "the hook preNormal waits for nothing", func(set *kruisev1alpha1.CloneSet) {
			set.Spec.Lifecycle.PreNormal = lifecycle.Enrolled().PreNormal
			set.Spec.Template.Labels[lifecycle.LabelPreNormal] = "true"
		}, "the template sets rollcall.dev/pre-normal, so the hook preNormal waits for nothing", false},
		{"annotated, and without a hook", "its author counts on Rollcall", func(set *kruisev1alpha1.CloneSet) {
			set.Spec.Lifecycle = &appspub.Lifecycle{}
			annotated(servicesKey, "web=80")(set)
		}, "annotation rollcall.dev/services, and no hook has a handler that Rollcall owns", false},
		{"without a hook", "it may be enrolled later", func(set *kruisev1alpha1.CloneSet) { set.Spec.Lifecycle = &appspub.Lifecycle{} }, "", false},
		{"the guard", "Rollcall sets no handler of that key", func(set *kruisev1alpha1.CloneSet) {
			hook(set)["rollcall.dev/guard"] = "true"
		}, "rollcall.dev/guard is Rollcall's guard and can't be a handler", false},
		{"annotated for Rollcall", "its author counts on Rollcall, and no hook is Rollcall's", func(set *kruisev1alpha1.CloneSet) {
			set.Spec.Lifecycle.InPlaceUpdate = nil
			set.Spec.Lifecycle.PreDelete.LabelsHandler = map[string]string{"exmaple.com/gate": "true"}
			annotated(servicesKey, "web=80")(set)
		}, "annotation rollcall.dev/services, and no hook has a handler that Rollcall owns (rollcall.dev/* example.com/* example.io/*)", false},
		{"annotated, and another's beside", "both can work", func(set *kruisev1alpha1.CloneSet) {
			hook(set)["somebody.example/gate"] = "true"
			annotated(servicesKey, "web=80")(set)
		}, "warning: somebody.example/gate is not a handler that Rollcall owns", false},
		{"Rollcall's own keys", "they are Rollcall's without a list", func(set *kruisev1alpha1.CloneSet) {
			set.Namespace = strict
			set.Spec.Lifecycle = lifecycle.Enrolled()
			hook(set)["rollcall.dev/another"] = "true"
		}, "", false},
		{"good", "the sample works", func(*kruisev1alpha1.CloneSet) {}, "", false},
	}
	create := func(c int) string {
		set := labels.load(t)
		set.Namespace = namespace
		cases[c].edit(set)
		return judged(t, func(to client.Client) error { return to.Create(t.Context(), set, client.DryRunAll) })
	}
	expect.Soon(t, "the policies to be in force", func() error {
		for i, c := range cases {
			if c.want != "" && create(i) == "" {
				return errors.New(c.name + " is accepted")
			}
		}
		return nil
	})
	expectKindsJudged(t, namespace)
	expectTemplatesJudged(t, namespace)
	parsed, err := config.Parse([]byte("cluster: c\nregistry: {driver: memory}\nhooks: {owned: [example.com/*, example.io/*, example.net/*]}"),
		config.Limits{})
	expect.NoError(t, err)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			expectJudgment(t, c.reason, create(i), c.want)
			set := labels.load(t)
			c.edit(set)
			// The sample's template sets handlers of inPlaceUpdate. Only an update can add them, so the plugin alone minds.
			if l := set.Spec.Lifecycle; l != nil && l.InPlaceUpdate != nil {
				for key := range l.InPlaceUpdate.LabelsHandler {
					delete(set.Spec.Template.Labels, key)
				}
			}
			w, refused := clusterstate.AsWorkload(set), c.want != "" && !strings.HasPrefix(c.want, "warning: ")
			found := !lint.Hookless(w) && len(lint.Workload(w, parsed, nil)) > 0
			if found != refused && !c.apart {
				t.Errorf("%s: the API server refuses it: %t; the plugin: %q", c.reason, refused, lint.Workload(w, parsed, nil))
			}
		})
	}
}

type lintCase struct {
	name, reason string
	edit         func(*kruisev1alpha1.CloneSet)
	want         string // refused, or a warning where that is what it begins with
	// apart: the plugin, which a person has asked about Rollcall's hooks, judges otherwise.
	apart bool
}

// judged returns what the API server says of a request: its error, or its warnings.
func judged(t *testing.T, request func(client.Client) error) string {
	t.Helper()
	said := &warnings{}
	config := rest.CopyConfig(env.cluster.Config())
	config.WarningHandler = said
	to, err := client.New(config, client.Options{Scheme: env.client.Scheme()})
	expect.NoError(t, err)
	if err := request(to); err != nil {
		return err.Error()
	}
	return strings.Join(*said, " ")
}

func expectJudgment(t *testing.T, reason, got, want string) {
	t.Helper()
	says, warns := strings.CutPrefix(want, "warning: ")
	refused := want != "" && !warns
	if !strings.Contains(got, says) || strings.Contains(got, "forbidden") != refused || want == "" && got != "" {
		t.Errorf("%s: want %q, got %q", reason, want, got)
	}
}

// expectKindsJudged has the policies judge the hooks of StatefulSets and DaemonSets, each by what OpenKruise does there.
func expectKindsJudged(t *testing.T, namespace string) {
	t.Helper()
	const handler = "example.com/unready-blocker-delete"
	like := func() *kruisev1alpha1.CloneSet {
		set := labels.load(t)
		set.Namespace = namespace
		withoutHandlers(set)
		return set
	}
	statefulSet := func(edit func(*kruisev1beta1.StatefulSet)) client.Object {
		set := asStatefulSet(like())
		edit(set)
		return set
	}
	daemonSet := func(edit func(*kruisev1alpha1.DaemonSet)) client.Object {
		set := asDaemonSet(like())
		edit(set)
		return set
	}
	for _, c := range []struct {
		reason string
		set    client.Object
		want   string
	}{
		{"the hooks work", statefulSet(func(*kruisev1beta1.StatefulSet) {}), ""},
		{"the label detaches the pod", statefulSet(func(set *kruisev1beta1.StatefulSet) {
			set.Spec.Selector.MatchLabels[handler], set.Spec.Template.Labels[handler] = "true", "true"
		}), "label " + handler + " is in spec.selector"},
		{"OpenKruise stops at the first pod", statefulSet(func(set *kruisev1beta1.StatefulSet) {
			set.Spec.PodManagementPolicy = "OrderedReady"
		}), "warning: set it to Parallel"},
		{"Rollcall sees the pods", daemonSet(func(*kruisev1alpha1.DaemonSet) {}), ""},
		{"nothing arms the pods", daemonSet(func(set *kruisev1alpha1.DaemonSet) {
			delete(set.Spec.Template.Labels, appspub.LifecycleStateKey)
		}), "does not set " + handler},
		{"the template arms the pods", daemonSet(func(set *kruisev1alpha1.DaemonSet) {
			delete(set.Spec.Template.Labels, appspub.LifecycleStateKey)
			set.Spec.Template.Labels[handler] = "true"
		}), ""},
		{"OpenKruise moves no pod on from there", daemonSet(func(set *kruisev1alpha1.DaemonSet) {
			set.Spec.Template.Labels[appspub.LifecycleStateKey] = "PreparingNormal"
		}), "set label lifecycle.apps.kruise.io/state to Normal"},
		{"OpenKruise has no such hook there", daemonSet(func(set *kruisev1alpha1.DaemonSet) {
			set.Spec.Lifecycle.PreNormal = lifecycle.Enrolled().PreNormal
		}), "does not wait at this hook in a DaemonSet"},
	} {
		got := judged(t, func(to client.Client) error { return to.Create(t.Context(), c.set, client.DryRunAll) })
		expectJudgment(t, c.reason, got, c.want)
	}
}

// expectTemplatesJudged has the policy refuse that a template is given a handler of inPlaceUpdate, and warn where pods in rotation lose
// one of preDelete.
func expectTemplatesJudged(t *testing.T, namespace string) {
	t.Helper()
	const update, del, added, removed = "example.com/unready-blocker-inplace", "example.com/unready-blocker-delete",
		"a handler of inPlaceUpdate", "warning: this removes example.com/unready-blocker-delete"
	cloneSet := func(name string) *kruisev1alpha1.CloneSet {
		set := labels.load(t)
		set.Namespace, set.Name, set.Spec.Replicas = namespace, name, new(int32(0))
		withoutHandlers(set)
		return set
	}
	both, statefulSet, unasked := cloneSet("both-hooks"), asStatefulSet(cloneSet("")), cloneSet("pre-delete-only")
	annotated(servicesKey, "web=80")(both)
	unasked.Spec.Lifecycle.InPlaceUpdate = nil
	for _, set := range []*kruisev1alpha1.CloneSet{both, unasked} {
		set.Spec.Template.Labels[del] = "true"
	}
	for _, set := range []client.Object{both, statefulSet, unasked} {
		expect.NoError(t, env.client.Create(t.Context(), set))
	}
	for _, c := range []struct {
		reason string
		of     client.Object
		edit   func(*clusterstate.Workload)
		want   string
	}{
		{"an update brings the handler along", both, func(w *clusterstate.Workload) { w.Template.Labels[update] = "true" }, added},
		{"the same of a StatefulSet", statefulSet, func(w *clusterstate.Workload) { w.Template.Labels[update] = "true" }, added},
		{"at another value it is not set", both, func(w *clusterstate.Workload) { w.Template.Labels[update] = "false" }, ""},
		{"preDelete is not asked on the way back", statefulSet, func(w *clusterstate.Workload) { w.Template.Labels[del] = "true" }, ""},
		{"a finalizer is brought along too", both, func(w *clusterstate.Workload) {
			w.Lifecycle.InPlaceUpdate.FinalizersHandler = []string{"example.io/f"}
			w.Object.(*kruisev1alpha1.CloneSet).Spec.Template.Finalizers = []string{"example.io/f"}
		}, added},
		{"hooks are taken back", both, func(w *clusterstate.Workload) { *w.Lifecycle = appspub.Lifecycle{} }, ""},
		{"the pods are out when they lose it", both, func(w *clusterstate.Workload) { delete(w.Template.Labels, del) }, ""},
		{"the pods are in rotation when they lose it", unasked, func(w *clusterstate.Workload) { delete(w.Template.Labels, del) }, removed},
		{"another value takes it too", unasked, func(w *clusterstate.Workload) { w.Template.Labels[del] = "false" }, removed},
	} {
		edited := c.of.DeepCopyObject().(client.Object)
		c.edit(clusterstate.AsWorkload(edited))
		got := judged(t, func(to client.Client) error {
			return to.Patch(t.Context(), edited, client.MergeFrom(c.of), client.DryRunAll)
		})
		expectJudgment(t, c.reason, got, c.want)
	}
}

// warnings are those of the API server.
type warnings []string

// HandleWarningHeader implements [rest.WarningHandler].
func (w *warnings) HandleWarningHeader(_ int, _, text string) { *w = append(*w, text) }

// needsNewer skips a test on the oldest Kubernetes, which lacks something.
func needsNewer(t *testing.T, lacks string) {
	t.Helper()
	if os.Getenv("KUBERNETES") == "1.26" {
		t.Skipf("Kubernetes 1.26 has no %s", lacks)
	}
}

// installLint binds the policy to a namespace with parameters of its own.
func installLint(t *testing.T, namespace string, data map[string]string) {
	t.Helper()
	name := "rollcall-" + namespace
	for _, object := range readComponent(t, "lint") {
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			if o.Name != "rollcall-lint" {
				continue
			}
			o.Name, o.Spec.ParamRef.Name = name, name
			o.Spec.MatchResources = inNamespace(namespace)
		case *corev1.ConfigMap:
			o.Name, o.Data = name, data
		default:
			continue
		}
		expect.NoError(t, env.client.Create(t.Context(), object))
	}
}

func inNamespace(name string) *admissionv1.MatchResources {
	return &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{corev1.LabelMetadataName: name},
	}}
}
