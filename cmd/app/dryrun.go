package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// remembered is how many reported steps a dry run remembers. Beyond that it may report a step again.
const remembered = 1 << 16

// dryRun reports what would be written, each step once until another one takes its place, and writes nothing. A
// nil dryRun is none.
type dryRun struct {
	logger  logr.Logger
	metrics *metrics.DryRunMetrics
	// told holds the last step of each subject.
	told *lru.Cache
}

func newDryRun(m *metrics.DryRunMetrics, logger logr.Logger) *dryRun {
	return &dryRun{logger: logger.WithName("dry-run"), metrics: m, told: lru.New(remembered)}
}

// tell reports a step that was not reported before. Another step with the same subject takes its place.
func (d *dryRun) tell(subject, registryName, operation string, keysAndValues ...any) {
	if before, found := d.told.Get(subject); found && before == operation {
		return
	}
	d.told.Add(subject, operation)
	d.metrics.Step(registryName, operation)
	d.logger.Info("would "+operation, keysAndValues...)
}

// change returns what tells the changes of a registry; nil but in a dry run.
func (d *dryRun) change(name string) func(registryclient.Subject) {
	if d == nil {
		return nil
	}
	return func(of registryclient.Subject) {
		in, source := of.Instance, lifecycle.Source{Registry: name}
		if of.ByApp {
			source.Writer = lifecycle.Application
		}
		d.tell(strings.Join([]string{source.String(), in.Service, in.Endpoint(), in.UID}, " "), name, of.Operation,
			"registry", source.String(), "service", in.Service, "endpoint", in.Endpoint(), "namespace", in.Namespace, "pod", in.Pod)
	}
}

// dryClient reports patches. This manager makes no other write, and app.permitWrite would refuse it. It reads workloads that a manager
// would enroll as if it had.
type dryClient struct {
	client.Client

	reads client.Reader
	run   *dryRun
}

// Get implements [client.Client].
func (c *dryClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.reads.Get(ctx, key, object, opts...)
}

// List implements [client.Client].
func (c *dryClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reads.List(ctx, list, opts...)
}

// supposed reads CloneSets of labelled namespaces as enrolled, in a dry run. That counts without enroll: true too: a namespace is labelled
// for nothing else.
func (a *app) supposed(from client.Reader) client.Reader {
	if a.dryRun == nil {
		return from
	}
	return &enroll.Supposed{
		Reader: from, Config: func() *config.Config { return a.drivers.inForce().config },
		Such: func(set *kruisev1alpha1.CloneSet, namespace labels.Set) bool {
			return enroll.Asked(set.Labels, namespace)
		},
	}
}

// Patch implements client.Client.
func (c *dryClient) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(object)
	if err != nil {
		return fmt.Errorf("making the patch: %w", err)
	}
	// It tests the pod's UID and its state's timestamp, so that the same changes at another time are another step.
	c.run.tell(string(data), "", metrics.OperationPatch, "namespace", object.GetNamespace(), "pod", object.GetName(),
		"changes", changesOf(data))
	return registryclient.ErrDryRun
}

// changesOf describes a JSON Patch without its tests.
func changesOf(data []byte) []string {
	var operations []lifecycle.Operation
	if err := json.Unmarshal(data, &operations); err != nil {
		return []string{string(data)}
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	var texts []string
	for _, o := range operations {
		switch {
		case o.Op == "test":
		case o.Value == nil:
			texts = append(texts, o.Op+" "+unescape.Replace(o.Path))
		default:
			texts = append(texts, fmt.Sprintf("%s %s: %v", o.Op, unescape.Replace(o.Path), o.Value))
		}
	}
	return texts
}

// dryRecorder reports Events. Its callers make each once.
type dryRecorder struct{ run *dryRun }

// Eventf implements events.EventRecorder.
func (r *dryRecorder) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	var about []any
	if object, ok := regarding.(client.Object); ok {
		kind := "pod"
		if _, is := object.(*lifecycle.Pod); !is {
			kind = "workload"
		}
		about = []any{"namespace", object.GetNamespace(), kind, object.GetName()}
	}
	r.run.event(kind, reason, fmt.Sprintf(note, args...), about...)
}

// event reports an Event and the object that it is about.
func (d *dryRun) event(kind, reason, note string, about ...any) {
	d.metrics.Step("", metrics.OperationEvent)
	d.logger.Info("would "+metrics.OperationEvent, append([]any{"type", kind, "reason", reason, "note", note}, about...)...)
}
