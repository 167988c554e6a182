package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the logins that kubectl has
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// What the manager's installation is called, by kustomize and by Helm.
const (
	configMapName = "rollcall-config"
	configKey     = "config.yaml"
	// reporter is the name under which the manager makes Events.
	reporter = "rollcall"
)

// cluster reads what the commands show.
type cluster struct {
	*options
	client.Client

	pods corev1client.PodsGetter
	rest *rest.Config
	// forward forwards a port of this machine to one of the pod until the context ends, and returns its address. Tests replace it.
	forward func(ctx context.Context, pod *corev1.Pod, port string) (local string, err error)
	// evict asks for the eviction of a pod as a dry run. Tests replace it.
	evict func(ctx context.Context, pod *corev1.Pod) (warnings string, err error)
	// namespace is that of the flags or of the kubeconfig's context.
	namespace string
	// where describes the cluster to a person.
	where string
	// silent are the managers that have not answered in time, by who holds the Lease, and why.
	silent map[string]error
	// ended is when the Lease was renewed last by a manager that does not live, where that was found.
	ended *metav1.MicroTime
}

// connected runs a command that asks the API server.
func (o *options) connected(run func(ctx context.Context, c *cluster, arguments []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, arguments []string) error {
		c, err := o.cluster()
		if err != nil {
			return err
		}
		c.warnOfSkew(cmd.Context())
		return run(cmd.Context(), c, arguments)
	}
}

func (o *options) cluster() (*cluster, error) {
	server, err := o.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	where := "server " + server.Host
	if raw, err := o.flags.ToRawKubeConfigLoader().RawConfig(); err == nil {
		if name := cmp.Or(*o.flags.Context, raw.CurrentContext); name != "" {
			where = fmt.Sprintf("context %s (%s)", name, server.Host)
		}
	}
	server.UserAgent = "kubectl-rollcall/" + o.version
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), clusterstate.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("making the scheme: %w", err)
	}
	c, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	pods, err := corev1client.NewForConfig(server)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	made := &cluster{options: o, Client: c, pods: pods, rest: server, namespace: namespace, where: where}
	made.forward, made.evict = made.kubectlForward, made.dryEviction
	return made, nil
}

// config reads the manager's configuration. Its drivers are not checked: they are the manager's. A manager that is newer than the plugin
// may read what the plugin does not know.
func (c *cluster) config(ctx context.Context, limits config.Limits) (*config.Config, error) {
	var object corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: c.installation, Name: configMapName}, &object)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &exitError{status: exitNoManager, err: fmt.Errorf(
			"namespace %s has no ConfigMap %s: set --rollcall-namespace to where Rollcall is installed", c.installation, configMapName)}
	case err != nil:
		return nil, reading("ConfigMap "+configMapName, err)
	}
	parsed, err := config.Parse([]byte(object.Data[configKey]), limits)
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s is invalid. If the manager accepts it, it is newer than this plugin: "+
			"install the plugin of its version: %w", c.installation, configMapName, err)
	}
	return parsed, nil
}

// tolerant has the commands that show what is, and skip, warn of what they can't read in the configuration.
func (o *options) tolerant() config.Limits {
	return config.Limits{
		Unknown: func(path string) {
			o.warnOnce("this plugin (%s) does not know the field %s of ConfigMap %s/%s; the manager may be newer: "+
				"install the plugin of its version", o.version, path, o.installation, configMapName)
		},
		Refused: func(err error) {
			o.warnOnce("ConfigMap %s/%s has fields that the manager rejects, unless it is newer than this plugin (%s). The manager keeps its "+
				"previous configuration, and this command ignores these fields: %v", o.installation, configMapName, o.version, err)
		},
	}
}

// warnOnce warns of the same once, however often a watch looks.
func (o *options) warnOnce(format string, arguments ...any) {
	text := prefix(o.context) + printable(fmt.Sprintf(format, arguments...))
	if slices.Contains(o.warned, text) {
		return
	}
	o.warned = append(o.warned, text)
	fmt.Fprintln(o.ErrOut, "warning:", text)
}

// watches reports whether the manager of this configuration watches the namespace. It may if the namespace can't be read.
func (c *cluster) watches(ctx context.Context, of *config.Config, namespace string) bool {
	read := clusterstate.NamespaceMetadata()
	if of.Namespaces.Selector == nil || c.Get(ctx, client.ObjectKey{Name: namespace}, read) != nil {
		return of.MayWatch(namespace)
	}
	return of.Watches(namespace, read.Labels)
}

// watched remembers what [cluster.watches] answers.
func (c *cluster) watched(ctx context.Context, of *config.Config) func(namespace string) bool {
	answers := map[string]bool{}
	return func(namespace string) bool {
		answer, known := answers[namespace]
		if !known {
			answer = c.watches(ctx, of, namespace)
			answers[namespace] = answer
		}
		return answer
	}
}

// notWatched explains what to do about a namespace that the manager of this configuration does not watch.
func notWatched(c *config.Config, namespace string) error {
	remedy := "add it and restart the managers"
	if c.Namespaces.Selector != nil {
		remedy = fmt.Sprintf("label it so that %s matches", c.Namespaces)
	}
	return &exitError{exitNotManaged, fmt.Errorf("namespace %s is not among the namespaces in the configuration: if another installation "+
		"watches it, pass that installation's namespace with --rollcall-namespace; otherwise %s", namespace, remedy)}
}

// managed returns the pods that Rollcall manages, those that wait first.
func (c *cluster) managed(ctx context.Context, w *world, opts ...client.ListOption) ([]Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, opts...); err != nil {
		return nil, reading("pods", err)
	}
	var managed []Pod
	for i := range list.Items {
		pod := lifecycle.PodOf(&list.Items[i])
		if w.unreadable(pod) != nil {
			continue
		}
		if p, is := w.view(pod); is {
			managed = append(managed, p)
		}
	}
	sortPods(managed)
	return managed, nil
}

// world reads what there is in addition to the pods. An empty namespace means all.
func (c *cluster) world(ctx context.Context, namespace string) (*world, error) {
	parsed, err := c.config(ctx, c.tolerant())
	if err != nil {
		return nil, err
	}
	w := &world{
		config: parsed, workloads: map[types.UID]*clusterstate.Workload{}, events: map[types.UID][]eventsv1.Event{},
	}
	w.lease, w.unled = c.renewed(ctx)
	w.now = c.now() // that took a while where the Lease looked expired
	w.readLease(c)
	refusal, err := c.refusal(ctx, w.lease, w.unled)
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		c.warnOnce("%s. This command does not know which namespaces the manager watches", refusal)
		w.config.Namespaces = service.Namespaces{}
	}
	w.watches = c.watched(ctx, w.config)
	if err := w.readWorkloads(ctx, c, namespace); err != nil {
		return nil, err
	}
	if w.known, w.unknown = c.known(ctx, w, namespace); w.known.Waits != nil {
		return w, nil
	}
	return w, w.readEvents(ctx, c, namespace)
}

// refusal reports that the manager keeps the configuration before, by its last Event on the ConfigMap. It is empty if that is in
// force, or if it is not known: if none is known to lead, or without the right to list Events. A manager that has come to lead
// since has told by itself.
func (c *cluster) refusal(ctx context.Context, lease *coordinationv1.Lease, unled error) (string, error) {
	if unled != nil || lease.Spec.AcquireTime == nil {
		return "", nil
	}
	all, err := c.reported(ctx, c.installation)
	if err != nil && !apierrors.IsForbidden(err) {
		return "", reading("Events", err)
	}
	for _, e := range slices.Backward(all) {
		switch {
		case !c.aboutConfig(e) || lastSeen(e).Before(lease.Spec.AcquireTime.Time):
		case e.Reason == "ConfigApplied":
			return "", nil
		case e.Reason == "ConfigRefused":
			return fmt.Sprintf("the manager has rejected ConfigMap %s/%s: %s", c.installation, configMapName, printable(e.Note)), nil
		}
	}
	return "", nil
}

// reported returns the manager's Events, the latest last.
func (c *cluster) reported(ctx context.Context, namespace string) ([]eventsv1.Event, error) {
	var events eventsv1.EventList
	of := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("reportingController", reporter)}
	if err := c.List(ctx, &events, client.InNamespace(namespace), of); err != nil {
		return nil, err
	}
	slices.SortStableFunc(events.Items, byLastSeen)
	return events.Items, nil
}

// aboutConfig reports whether the manager has made the Event about its own ConfigMap, if whoever made it tells the truth.
func (c *cluster) aboutConfig(e eventsv1.Event) bool {
	of := e.Regarding
	return e.ReportingController == reporter && of.Kind == "ConfigMap" && of.Namespace == c.installation && of.Name == configMapName
}

// permitted lists what a person may list, and reports that the rest is forbidden.
type permitted struct {
	client.Client

	forbidden func(list client.ObjectList, err error)
}

func (p permitted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := p.Client.List(ctx, list, opts...)
	if apierrors.IsForbidden(err) {
		p.forbidden(list, err)
		return nil
	}
	return err
}

// readWorkloads goes without the kinds that a person may not list, unless that is all of them.
func (w *world) readWorkloads(ctx context.Context, c *cluster, namespace string) error {
	w.forbidden = map[string]error{}
	var last error
	by := permitted{c.Client, func(list client.ObjectList, err error) {
		if of, unknown := c.GroupVersionKindFor(list); unknown == nil {
			w.forbidden[strings.TrimSuffix(of.Kind, "List")], last = reading("workloads", err), err
		}
	}}
	err := clusterstate.EachWorkload(ctx, by, func(one *clusterstate.Workload) { w.workloads[one.GetUID()] = one },
		client.InNamespace(namespace))
	switch {
	case meta.IsNoMatchError(err):
		return errors.New("the cluster has no CloneSets: install OpenKruise first, https://openkruise.io/docs/installation")
	case err == nil && len(w.forbidden) == len(clusterstate.Kinds()):
		err = last
	}
	if err != nil {
		return reading("workloads", err)
	}
	for _, kind := range slices.Sorted(maps.Keys(w.forbidden)) {
		c.warnOnce("pods of %ss are not shown: %v", kind, w.forbidden[kind])
	}
	return nil
}

// unreadable is why a pod can't be judged: a person may not list workloads of its kind.
func (w *world) unreadable(pod *lifecycle.Pod) error {
	if owner := clusterstate.OwnerOf(pod); owner != nil {
		return w.forbidden[owner.Kind]
	}
	return nil
}

// readEvents is for what the manager does not answer. It continues without if a person may not list them: before 1.35, Kubernetes' own
// roles have the right to Events of the core group alone.
func (w *world) readEvents(ctx context.Context, c *cluster, namespace string) error {
	events, err := c.reported(ctx, namespace)
	switch {
	case apierrors.IsForbidden(err):
		c.warnOnce("the reasons are only what the pods show: reading Events: %v", err)
	case err != nil:
		return reading("Events", err)
	}
	for _, e := range events {
		w.events[e.Regarding.UID] = append(w.events[e.Regarding.UID], e)
	}
	return nil
}

// one reads the object of a kind and a name in the namespace.
func (c *cluster) one(ctx context.Context, kind, name string, object client.Object) error {
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return &exitError{exitNotFound, fmt.Errorf("namespace %s has no %s %s", c.namespace, kind, name)}
	case err != nil:
		return reading(kind+" "+name, err)
	}
	return nil
}

// operation is one of a JSON Patch.
type operation = lifecycle.Operation

// annotate writes an annotation on an object that was read, and on no later object of its name. It reads the object again, and
// value returns what to write, with tests of what that rests on, or why nothing is written: a person may have been asked an hour ago. It
// does not test the resource version: a Lease is renewed more often than a slow connection answers.
func annotate[T any, O interface {
	*T
	client.Object
}](ctx context.Context, c *cluster, kind string, was O, key string, value func(O) (text string, tests []operation, err error)) error {
	return asking(retry.OnError(retry.DefaultBackoff, lifecycle.IsMoved, func() error {
		now := O(new(T))
		if err := c.Get(ctx, client.ObjectKeyFromObject(was), now); err != nil {
			return reading(kind+" "+was.GetName(), err)
		}
		if now.GetUID() != was.GetUID() {
			return fmt.Errorf("%s %s is another one by now", kind, was.GetName())
		}
		text, tests, err := value(now)
		if err != nil {
			return err
		}
		tests = append(tests, operation{Op: "test", Path: "/metadata/uid", Value: now.GetUID()})
		patch, err := json.Marshal(append(tests, replacing(now.GetAnnotations(), key, text)...))
		if err == nil {
			err = c.Patch(ctx, now, client.RawPatch(types.JSONPatchType, patch))
		}
		if err != nil {
			return fmt.Errorf("annotating %s %s: %w", kind, was.GetName(), err)
		}
		return nil
	}))
}

// replacing writes an annotation that is as it was read.
func replacing(read map[string]string, key, text string) []operation {
	if len(read) == 0 {
		const all = "/metadata/annotations"
		return []operation{{Op: "test", Path: all}, {Op: "add", Path: all, Value: map[string]string{key: text}}}
	}
	return []operation{same("annotations", read, key), {Op: "add", Path: pointer("annotations", key), Value: text}}
}

// same tests that a label or annotation is as it was read.
func same(field string, read map[string]string, key string) operation {
	test := operation{Op: "test", Path: pointer(field, key)}
	if value, found := read[key]; found {
		test.Value = value
	}
	return test
}

// pointer is for a key without a tilde.
func pointer(field, key string) string {
	return "/metadata/" + field + "/" + strings.ReplaceAll(key, "/", "~1")
}

// reading reports what could not be read, and what right is missing.
func reading(what string, err error) error { return asking(fmt.Errorf("reading %s: %w", what, err)) }

// asking gives what the API server refuses its exit status.
func asking(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return &exitError{exitForbidden, err}
	}
	return err
}
