package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/shorten"
)

// What one object of a tenant may cost, whatever it holds. A usual pod has 5 kB in the cache, and its visit allocates 10 kB.
const (
	mostKept      = 192 << 10
	mostAllocated = 4 << 20
)

// written is something that a tenant can write, as docs/security.md lists it.
type written struct {
	what, most, beyond string
	// much writes n of it, on the pod and the workload.
	much func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet)
	// n is far beyond the bound.
	n int
}

func kib(n int) string { return fmt.Sprintf("%d KiB", n>>10) }

// allWritten is the list. What is written has to be on it: see docs/architecture.md on adding an annotation.
func allWritten() []written {
	const invalid = "The pod waits with `InvalidPod`."
	annotation := func(key, item, between string) func(int, *corev1.Pod, *kruisev1alpha1.CloneSet) {
		return func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
			var items []string
			for i := range n {
				items = append(items, strings.ReplaceAll(item, "#", fmt.Sprintf("%06d", i)))
			}
			pod.Annotations[key] = strings.Join(items, between)
			set.Spec.Template.Annotations = map[string]string{key: pod.Annotations[key]}
		}
	}
	return []written{
		{
			"Handlers in `spec.lifecycle`", fmt.Sprint(lifecycle.MaxHandlers), "None is used: `HandlerRefused`.",
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				set.Spec.Lifecycle.PreDelete.LabelsHandler = numbered("rollcall.dev/h-", n)
				pod.Labels = merged(pod.Labels, numbered("rollcall.dev/h-", n))
			}, 3000,
		},
		{
			"Keys in `spec.selector`", fmt.Sprint(lifecycle.MaxSelector), "No label can be a handler: `HandlerRefused`.",
			func(n int, _ *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				set.Spec.Selector.MatchLabels = merged(set.Spec.Selector.MatchLabels, numbered("example.com/s-", n))
			}, 3000,
		},
		{
			"Labels of a pod or a template", fmt.Sprint(lifecycle.MaxLabels), invalid,
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				pod.Labels = merged(pod.Labels, numbered("example.com/l-", n))
				set.Spec.Template.Labels = merged(set.Spec.Template.Labels, numbered("example.com/l-", n))
			}, 3000,
		},
		{
			"Finalizers of a pod or a template", fmt.Sprint(lifecycle.MaxFinalizers), invalid,
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				for i := range n {
					pod.Finalizers = append(pod.Finalizers, fmt.Sprintf("rollcall.dev/f-%06d", i))
				}
				set.Spec.Template.Finalizers = pod.Finalizers
			}, 3000,
		},
		{
			"Containers, and ports of all together", fmt.Sprintf("%d, %d", lifecycle.MaxContainers, lifecycle.MaxPorts), invalid,
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				for i := range n {
					pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Ports: make([]corev1.ContainerPort, 20)})
				}
				set.Spec.Template.Spec.Containers = pod.Spec.Containers
			}, 1000,
		},
		{
			"Readiness gates", fmt.Sprint(lifecycle.MaxGates), invalid,
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				for i := range n {
					gate := corev1.PodReadinessGate{ConditionType: corev1.PodConditionType(fmt.Sprint("example.com/g-", i))}
					pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, gate)
				}
				set.Spec.Template.Spec.ReadinessGates = pod.Spec.ReadinessGates
			}, 3000,
		},
		{
			"`" + service.AnnotationServices + "`", "50 services, " + kib(lifecycle.LimitOf(service.AnnotationServices)), invalid,
			annotation(service.AnnotationServices, "service-#=80", ","), 5000,
		},
		{
			"`" + service.AnnotationTags + "`", "50 tags, " + kib(lifecycle.LimitOf(service.AnnotationTags)), invalid,
			annotation(service.AnnotationTags, "tag-#", ","), 10000,
		},
		{
			"`" + service.AnnotationMetadata + "`", "50 pairs and 50 that remove one, " + kib(lifecycle.LimitOf(service.AnnotationMetadata)), invalid,
			annotation(service.AnnotationMetadata, "key-#=v", ","), 10000,
		},
		{
			"`" + lifecycle.AnnotationNetworks + "`", kib(lifecycle.MaxText), "If the pod is registered on a network, it stays as it is: `NoAddress`.",
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				annotation(lifecycle.AnnotationNetworks, `{"name":"shop/net-#","ips":["172.16.0.1"]}`, ",")(n, pod, set)
				pod.Annotations[lifecycle.AnnotationNetworks] = "[" + pod.Annotations[lifecycle.AnnotationNetworks] + "]"
			}, 2000,
		},
		{
			"`" + lifecycle.AnnotationRecord + "`", kib(lifecycle.MaxRecord), "The annotation is ignored.",
			func(n int, pod *corev1.Pod, _ *kruisev1alpha1.CloneSet) { forge(pod, n, "x") }, 1000,
		},
		{
			"Entries that only that annotation shows", fmt.Sprintf("%d at a time", plan.MaxHeard), "The others follow, and hooks wait for them.",
			func(_ int, pod *corev1.Pod, _ *kruisev1alpha1.CloneSet) { forge(pod, 450, "y") }, 450,
		},
		{
			"Any other annotation of Rollcall's", kib(lifecycle.MaxWord), invalid,
			annotation(service.AnnotationDrain, "1s", ""), 50_000,
		},
		{
			"Annotations of no effect under `rollcall.dev/`, or with the value `true`", fmt.Sprint(lifecycle.MaxOthers), "Only the first by name are kept.",
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				pod.Annotations = merged(pod.Annotations, numbered("rollcall.dev/a-", n))
				set.Spec.Template.Annotations = pod.Annotations
			}, 2000,
		},
		{
			"Everything else of a pod, a workload and its template", "0", "It is not kept.",
			func(n int, pod *corev1.Pod, set *kruisev1alpha1.CloneSet) {
				text := strings.Repeat("x", n)
				pod.Annotations["example.com/a"] = text
				pod.Spec.Containers[0].Args, pod.Spec.Volumes = []string{text}, make([]corev1.Volume, n/100)
				set.Annotations, set.Labels = map[string]string{"example.com/a": text}, map[string]string{"example.com/a": text}
				set.Spec.Template.Annotations, set.Spec.Template.Spec = map[string]string{"example.com/a": text}, *pod.Spec.DeepCopy()
			}, 200_000,
		},
		{
			"A text that a message quotes, and the message", fmt.Sprintf("%d bytes, %d bytes", shorten.MaxQuoted, shorten.MaxMessage), "It is shortened.",
			annotation(service.AnnotationServices, "x", ""), 200_000,
		},
		{
			"Events on one pod", fmt.Sprintf("%d in a row, then one in %s", memory.EventBurst, memory.EventPause),
			"The next one comes later; that of a hook that is released without an acknowledgement always comes.", nil, 0,
		},
	}
}

func numbered(prefix string, n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("%s%06d", prefix, i)] = "true"
	}
	return all
}

func merged(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, one := range all {
		maps.Copy(merged, one)
	}
	return merged
}

// forge writes a record of n entries that nobody has.
func forge(pod *corev1.Pod, n int, called string) {
	r := lifecycle.Record{Version: 1, Stamp: lifecycle.StampOf(lifecycle.PodOf(pod)), Want: lifecycle.InService}
	for i := range n {
		in := lifecycle.Key{Registry: "default", Service: lifecycle.Service(fmt.Sprintf("%s-%d", called, i)), Address: pod.Status.PodIP, Port: 80}
		r.Instances = append(r.Instances, in)
	}
	text, _ := json.Marshal(r) //nolint:errchkjson // it has nothing that can't be encoded
	pod.Annotations[lifecycle.AnnotationRecord] = string(text)
}

// TestWhatATenantWritesIsBounded: whatever is written, what is kept of it, and a visit's calls, allocations and message, stay within the
// budget, and four times as much costs no more.
func TestWhatATenantWritesIsBounded(t *testing.T) { //nolint:paralleltest // other tests' allocations would count
	for _, c := range allWritten() { //nolint:paralleltest // as above
		if c.much == nil {
			continue
		}
		t.Run(c.what, func(t *testing.T) {
			less, more := costOf(t, c, c.n), costOf(t, c, 4*c.n)
			for _, cost := range []cost{less, more} {
				if cost.kept > mostKept || cost.allocated > mostAllocated || cost.calls > 1+plan.MaxHeard || cost.message > shorten.MaxMessage {
					t.Errorf("it costs %+v, more than the budget", cost)
				}
			}
			if more.allocated > less.allocated+less.allocated/2+64<<10 {
				t.Errorf("four times as much allocates %d bytes, and not %d", more.allocated, less.allocated)
			}
		})
	}
}

type cost struct{ kept, calls, message, allocated int }

func costOf(t *testing.T, c written, n int) (of cost) {
	t.Helper()
	w := newWorld(t)
	web := w.cloneSet("web")
	whole := w.current(w.servingPod(web, "web-1"))
	c.much(n, whole, web)
	stripped, err := clusterstate.StripWorkload(web)
	w.must(err, "stripping the CloneSet")
	set, pod := stripped.(*kruisev1alpha1.CloneSet), lifecycle.PodOf(whole)
	for _, kept := range []any{set, pod} {
		text, err := json.Marshal(kept)
		w.must(err, "encoding what is kept")
		of.kept = max(of.kept, len(text))
	}
	w.rebuilt(func(o *Options) { o.Client, o.Pods = oneCloneSet{o.Client, set}, onePod{pod} })
	visit := func() { _, _ = w.r.Reconcile(t.Context(), lifecycle.PodIDOf(pod)) } // the API server may refuse what is written
	visit()
	for _, line := range w.takeJournal() {
		if !strings.HasPrefix(line, "write ") {
			of.calls++
		}
	}
	for _, wait := range w.r.Waits() {
		of.message = max(of.message, len(wait.Message))
	}
	visit()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	visit()
	runtime.ReadMemStats(&after)
	of.allocated = int(after.TotalAlloc - before.TotalAlloc)
	return of
}

// TestWhatATenantWritesIsListed holds docs/security.md against the list.
func TestWhatATenantWritesIsListed(t *testing.T) {
	t.Parallel()
	const page, begins, ends = "../../docs/security.md", "<!-- bounds -->\n", "<!-- /bounds -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), begins)
	listed, _, found := strings.Cut(rest, ends)
	if !found {
		t.Fatalf("%s has no table between %s and %s", page, begins, ends)
	}
	want := "\n| what a tenant writes | Rollcall keeps and reads | beyond that |\n|---|---|---|\n"
	for _, c := range allWritten() {
		want += fmt.Sprintf("| %s | %s | %s |\n", c.what, c.most, c.beyond)
	}
	if diff := cmp.Diff(want+"\n", listed); diff != "" {
		t.Errorf("%s lists other bounds than the code has: write these lines (-want +got)\n%s\n%s", page, diff, want)
	}
	if most := fmt.Sprintf("never more than %d KiB", mostKept>>10); !strings.Contains(string(text), most) {
		t.Errorf("%s lacks %q", page, most)
	}
}

// TestForgedRecordIsTakenOutBitByBit: a record costs few calls at a time, and holds the pod until all that it shows is out.
func TestForgedRecordIsTakenOutBitByBit(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.changePod(pod, func(p *corev1.Pod) { forge(p, 40, "old") })
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	calls := 0
	for range 3 {
		w.reconcile(pod)
		now := 0
		for _, line := range w.takeJournal() {
			if strings.HasPrefix(line, "Deregister old-") {
				now++
			}
		}
		if now > plan.MaxHeard {
			t.Fatalf("%d calls were made in one visit, want at most %d", now, plan.MaxHeard)
		}
		if calls += now; calls < 40 {
			w.expectHooks("entries that the record shows are still to be taken out", pod, "inPlaceUpdate preDelete")
		}
	}
	if calls != 40 {
		t.Errorf("%d calls were made for 40 entries", calls)
	}
	w.expectAbsent(pod)
}
