package preview_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/preview"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// TestOf shows of each pod what Rollcall would keep, what is there now, and what would be refused.
func TestOf(t *testing.T) {
	t.Parallel()
	const reached = "registry: {driver: known}\n"
	type row struct {
		reason, configuration string
		objects               []client.Object
		forbidden             string
		namespace             string
		want                  string
	}
	web := objects("prod", "web")
	expect.Each(t, map[string]row{
		"not in rotation yet": {
			reason: "a newcomer's registry may know nothing", configuration: reached, objects: web,
			want: "prod/web gets preNormal label rollcall.dev/pre-normal=true, inPlaceUpdate label rollcall.dev/in-place-update=true, " +
				"preDelete label rollcall.dev/pre-delete=true\n  web-0 web 10.0.0.1:80 default Absent",
		},
		"registered by somebody else": {
			reason: "it would be there twice", configuration: "registry: {driver: known, options: {has: Foreign}}\n", objects: web,
			want: "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default Foreign",
		},
		"by its application": {
			reason: "Rollcall steers that entry", configuration: "registry: {driver: known, registeredBy: App, options: {has: InService}}\n",
			objects: web, want: "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default=app InService",
		},
		"a registry that can only be listed": {
			reason: "the list shows it", configuration: "registry: {driver: listing}\n", objects: web,
			want: "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default OutOfService",
		},
		"a registry that fails": {
			reason: "a person may be outside the cluster", configuration: "registry: {driver: known, options: {fails: true}}\n", objects: web,
			want: "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default \ndefault: connection refused",
		},
		"files that only the managers have": {
			reason: "what would be registered is known all the same", objects: web,
			configuration: "registry: {driver: known, auth: {tokenFile: /none/token}}\n",
			want:          "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default \ndefault: auth.tokenFile",
		},
		"a driver of somebody's own": {
			reason: "the plugin does not have it", configuration: "registry: {driver: acme}\n", objects: web,
			want: "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default \ndefault: only the manager can ask registries of driver acme",
		},
		"no port": {
			reason: "the manager would refuse to enroll it", configuration: reached, objects: without(web, func(set *kruisev1alpha1.CloneSet) {
				set.Spec.Template.Spec.Containers[0].Ports = nil
			}),
			want: "prod/web refused: no port to register",
		},
		"a name of an older namespace": {
			reason: "each would be given the other's clients", configuration: reached,
			objects: append(objects("prod", "web"), objects("shop", "web")...), namespace: "shop",
			want: `shop/web refused: service "web" belongs to namespace prod`,
		},
		"the same name in the whole cluster": {
			reason: "only the older one gets it", configuration: reached, objects: append(objects("prod", "web"), objects("shop", "web")...),
			want: "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default Absent\n" + `shop/web refused: service "web" belongs to namespace prod`,
		},
		"a namespace that is not watched": {
			reason: "new pods would wait forever", configuration: reached + "namespaces: [pay]\n", objects: web,
			want: "prod/web refused: namespace prod is not among the namespaces",
		},
		"hooks already": {
			reason: "it stays as it is", configuration: reached, objects: without(web, func(set *kruisev1alpha1.CloneSet) {
				set.Spec.Lifecycle = lifecycle.Enrolled()
			}),
			want: "prod/web managed\n  web-0 web 10.0.0.1:80 default Absent",
		},
		"somebody else's hooks": {
			reason: "their owner counts on being alone", configuration: reached, objects: without(web, func(set *kruisev1alpha1.CloneSet) {
				set.Spec.Lifecycle = &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"somebody.example/out"}}}
			}),
			want: "prod/web refused: spec.lifecycle.preDelete has finalizer somebody.example/out",
		},
		"a pod whose annotation is wrong": {
			reason: "it would wait, and the template is right", configuration: reached, objects: podWith(objects("prod", "web"), func(pod *corev1.Pod) {
				pod.Annotations = map[string]string{"rollcall.dev/services": "many"}
			}),
			want: "prod/web gets hooks\n  web-0 InvalidPod: annotation rollcall.dev/services",
		},
		"a person without rights in other namespaces": {
			reason: "their own namespace is enough", configuration: reached, objects: web, namespace: "prod", forbidden: "prod",
			want: "prod/web gets hooks\n  web-0 web 10.0.0.1:80 default Absent",
		},
	}, func(t *testing.T, c row) {
		parsed, err := config.Parse([]byte("cluster: a\n"+c.configuration), config.Limits{})
		expect.NoError(t, err)
		seen, err := preview.Of(t.Context(), cluster(t, c.forbidden, c.objects...), preview.Request{
			Config: parsed, Namespace: c.namespace, Drivers: map[string]registry.Constructor{"known": newKnown, "listing": newListing},
			Chosen: func(*kruisev1alpha1.CloneSet, labels.Set) bool { return true },
		})
		expect.NoError(t, err)
		got := text(seen, strings.Contains(c.want, "gets hooks"))
		if !strings.HasPrefix(got, c.want) && !matches(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.reason, got, c.want)
		}
	})
}

// matches compares line by line, by how each begins.
func matches(got, want string) bool {
	is, wanted := strings.Split(got, "\n"), strings.Split(want, "\n")
	if len(is) != len(wanted) {
		return false
	}
	for i, line := range is {
		if !strings.HasPrefix(line, wanted[i]) {
			return false
		}
	}
	return true
}

func text(p *preview.Preview, short bool) string {
	var lines []string
	for _, set := range p.CloneSets {
		var hooks []string
		for _, h := range set.Hooks {
			hooks = append(hooks, fmt.Sprintf("%s %s", h.Hook, h))
		}
		does := "gets " + strings.Join(hooks, ", ")
		switch {
		case len(set.Refused) > 0:
			does = "refused: " + strings.Join(set.Refused, "; ")
		case set.Managed:
			does = "managed"
		case short && len(hooks) > 0:
			does = "gets hooks"
		}
		lines = append(lines, set.Namespace+"/"+set.Name+" "+does)
		for _, pod := range set.Pods {
			if pod.Reason != "" {
				lines = append(lines, fmt.Sprintf("  %s %s: %s", pod.Name, pod.Reason, pod.Message))
			}
			for _, e := range pod.Entries {
				of := e.Registry
				if e.Writer != "" {
					of += "=" + string(e.Writer)
				}
				lines = append(lines, fmt.Sprintf("  %s %s %s %s %s", pod.Name, e.Service, e.Endpoint, of, e.Now))
			}
		}
	}
	for name, err := range p.Unasked {
		lines = append(lines, name+": "+err.Error())
	}
	return strings.Join(lines, "\n")
}

// objects are a CloneSet without hooks and its pod, in a namespace that is younger the later its name.
func objects(namespace, name string) []client.Object {
	app := map[string]string{"app": name}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}, NodeName: "node"}
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	set.Spec.Selector, set.Spec.Template.Labels = &metav1.LabelSelector{MatchLabels: app}, app
	set.Spec.Template.Spec = spec
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name + "-0", UID: types.UID(namespace + name + "0"),
			Labels: map[string]string{"app": name, appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kruisev1alpha1.GroupVersion.String(), Kind: "CloneSet", Name: name, UID: set.UID, Controller: new(true),
			}},
		},
		Spec: spec,
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	created := metav1.NewTime(time.Unix(int64(namespace[0])*1000, 0))
	return []client.Object{
		set, pod, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, CreationTimestamp: created}},
	}
}

func without(all []client.Object, edit func(*kruisev1alpha1.CloneSet)) (edited []client.Object) {
	for _, object := range all {
		object, _ = object.DeepCopyObject().(client.Object)
		if set, is := object.(*kruisev1alpha1.CloneSet); is {
			edit(set)
		}
		edited = append(edited, object)
	}
	return edited
}

func podWith(all []client.Object, edit func(*corev1.Pod)) []client.Object {
	for _, object := range all {
		if pod, is := object.(*corev1.Pod); is {
			edit(pod)
		}
	}
	return all
}

// cluster refuses a write, and whatever a person with rights in one namespace alone may not read.
func cluster(t *testing.T, only string, all ...client.Object) client.Client {
	t.Helper()
	var copies []client.Object
	for _, object := range all {
		one, _ := object.DeepCopyObject().(client.Object)
		copies = append(copies, one)
	}
	forbidden := apierrors.NewForbidden(corev1.Resource("any"), "", errors.New("no right"))
	return fake.NewClientBuilder().WithScheme(kube.Scheme(clientscheme.AddToScheme)).WithObjects(copies...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, from client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if of := (&client.ListOptions{}).ApplyOptions(opts); only != "" && of.Namespace != only {
				return forbidden
			}
			return from.List(ctx, list, opts...)
		},
		Get: func(ctx context.Context, from client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if only != "" && key.Namespace != only {
				return forbidden
			}
			return from.Get(ctx, key, object, opts...)
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			t.Error("the preview writes")
			return forbidden
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			t.Error("the preview writes")
			return forbidden
		},
	}).Build()
}

// known is a registry that has the same of every instance. It refuses to be written.
type known struct {
	registry.Registry

	has   registry.State
	fails bool
}

func newKnown(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	if cfg.Auth.TokenFile != "" {
		if _, err := os.ReadFile(cfg.Auth.TokenFile); err != nil {
			return nil, registry.FieldError("auth.tokenFile", err)
		}
	}
	k := known{has: registry.Absent, fails: strings.Contains(string(cfg.Options), "fails")}
	for _, state := range []registry.State{registry.InService, registry.Foreign} {
		if strings.Contains(string(cfg.Options), string(state)) {
			k.has = state
		}
	}
	return k, nil
}

func (k known) Get(context.Context, registry.Instance) (registry.State, error) {
	if k.fails {
		return "", errors.New("connection refused")
	}
	return k.has, nil
}

func (k known) AppEntries() registry.AppRegistry { return k }

// listing is one that can only be listed.
type listing struct{ registry.Registry }

func newListing(context.Context, registry.Config) (registry.Registry, error) { return listing{}, nil }

func (listing) List(context.Context, string) ([]registry.Entry, error) {
	return []registry.Entry{{Instance: registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80}, State: registry.OutOfService}}, nil
}

// TestRegistryThatFailsIsAskedOnce: each pod would wait for its timeout.
func TestRegistryThatFailsIsAskedOnce(t *testing.T) {
	t.Parallel()
	const pods = 200
	var calls atomic.Int64
	all := objects("prod", "web")
	for i := range pods {
		pod := all[1].DeepCopyObject().(*corev1.Pod)
		pod.Name, pod.UID = fmt.Sprintf("web-%03d", i+1), types.UID(fmt.Sprint(i))
		all = append(all, pod)
	}
	parsed, err := config.Parse([]byte("cluster: a\nregistry: {driver: counting}\n"), config.Limits{})
	expect.NoError(t, err)
	seen, err := preview.Of(t.Context(), cluster(t, "", all...), preview.Request{
		Config: parsed, Chosen: func(*kruisev1alpha1.CloneSet, labels.Set) bool { return true },
		Drivers: map[string]registry.Constructor{"counting": func(context.Context, registry.Config) (registry.Registry, error) {
			return counting{calls: &calls}, nil
		}},
	})
	expect.NoError(t, err)
	if asked := calls.Load(); len(seen.CloneSets[0].Pods) != pods+1 || asked == 0 || asked > pods/4 {
		t.Errorf("%d pods cost %d calls to a registry that fails", len(seen.CloneSets[0].Pods), asked)
	}
}

type counting struct {
	registry.Registry

	calls *atomic.Int64
}

func (c counting) Get(context.Context, registry.Instance) (registry.State, error) {
	c.calls.Add(1)
	return "", errors.New("connection refused")
}
