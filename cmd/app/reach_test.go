package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// rolesScenario is an API server that grants what the test says, such as "watch nodes" and "get namespaces in a".
type rolesScenario struct {
	client.WithWatch

	mu     sync.Mutex
	grants []string
	down   bool
}

func newRolesScenario(grants ...string) *rolesScenario {
	s := &rolesScenario{grants: grants}
	s.WithWatch = interceptor.NewClient(clientfake.NewClientBuilder().WithScheme(newScheme()).Build(), interceptor.Funcs{
		Create: s.create, Get: s.get,
	})
	return s
}

func (s *rolesScenario) create(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) (err error) {
	review, is := object.(*authorizationv1.SelfSubjectAccessReview)
	if !is {
		return c.Create(ctx, object, options...)
	}
	of := review.Spec.ResourceAttributes
	review.Status.Allowed, err = s.may(of.Verb+" "+of.Resource, of.Namespace)
	return err
}

func (s *rolesScenario) get(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption,
) error {
	switch may, err := s.may("get namespaces", key.Name); {
	case err != nil:
		return err
	case !may:
		return apierrors.NewForbidden(corev1.Resource("namespaces"), key.Name, errors.New("cannot get resource"))
	}
	return c.Get(ctx, key, object, options...)
}

func (s *rolesScenario) may(right, in string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return false, errors.New("no answer")
	}
	return slices.Contains(s.grants, right) || slices.Contains(s.grants, right+" in "+in), nil
}

// Grants replaces what is granted.
func (s *rolesScenario) Grants(grants ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants = grants
}

func (s *rolesScenario) Namespace(t *testing.T, name string) {
	t.Helper()
	must(t, s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": name}}}))
}

// TestReach: what a manager watches of the whole cluster, and when it starts again for more.
func TestReach(t *testing.T) {
	t.Parallel()
	all := []string{"list nodes", "watch nodes", "list namespaces", "watch namespaces"}
	type row struct {
		reason         string
		listed, grants []string
		down           bool
		want           reach
		later          []string
		again          bool
	}
	expect.Each(t, map[string]row{
		"a ClusterRole":              {"it is as ever", []string{"a"}, all, false, reach{true, true}, all, false},
		"a ClusterRole that is lost": {"a start would know less", []string{"a"}, all, false, reach{true, true}, nil, false},
		"Roles":                      {"a Role grants neither", []string{"a"}, nil, false, reach{}, all, true},
		"nodes alone":                {"a small ClusterRole", []string{"a"}, all[:2], false, reach{nodes: true}, all, true},
		"half of the rights":         {"a list without a watch is out of date", []string{"a"}, []string{"list nodes"}, false, reach{}, all, true},
		"the whole cluster":          {"it reports what it lacks", nil, nil, false, reach{true, true}, all, false},
		"an API server that is down": {"nothing is left out on a guess", []string{"a"}, nil, true, reach{true, true}, all, false},
		"Roles, which are not known": {"the caches are never filled", []string{"a"}, nil, true, reach{true, true}, nil, true},
	}, func(t *testing.T, tc row) {
		s := newRolesScenario(tc.grants...)
		s.down = tc.down
		n := newNamespaces(t.Context(), s, service.Namespaces{Names: tc.listed}, quiet())
		if n.reach != tc.want {
			t.Errorf("the reach is %+v, want %+v: %s", n.reach, tc.want, tc.reason)
		}
		if source := n.source(); (source == nil) != tc.want.namespaces {
			t.Errorf("the source of namespaces is %v: %s", source, tc.reason)
		}
		s.down = false
		s.Grants(append(slices.Clone(tc.later), "watch pods", "get namespaces")...)
		if err := n.check(t.Context()); (err != nil) != tc.again {
			t.Errorf("with other rights, the manager exits with %v: %s", err, tc.reason)
		}
		s.Grants("watch pods", "get namespaces")
		if err := n.check(t.Context()); err != nil && !tc.again {
			t.Errorf("without the rights that are known, the manager exits with %v: a start would know less", err)
		}
	})
}

// TestNamespacesOfRoles: the cache has the namespaces that the manager can get, although it can't list all.
func TestNamespacesOfRoles(t *testing.T) {
	t.Parallel()
	s := newRolesScenario("get namespaces in a", "watch pods in a", "get namespaces in b", "watch pods in b")
	s.Namespace(t, "a")
	s.Namespace(t, "b")
	n := newNamespaces(t.Context(), s, service.Namespaces{Names: []string{"a", "b", "gone"}}, quiet())
	expect.Equal(t, []string{"a", "b"}, n.watched, "one without rights may not exist")
	source := n.source().(*namespaceGets)
	source.interval = time.Millisecond
	failures := &watchFailures{}
	cached := namespacesIn(t, cacheOfNamespaces(t, source, failures))
	expect.Soon(t, "the namespaces", cached("a=a b=b"))

	t.Log("A label changes.")
	must(t, s.Update(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"team": "c"}}}))
	expect.Soon(t, "the label", cached("a=c b=b"))

	t.Log("A RoleBinding is deleted: the labels are not known, which is not none, and the namespace may be there.")
	s.Grants("get namespaces in a", "watch pods in a")
	expect.Soon(t, "the failure", func() error {
		if err := failures.of(watched{object: clusterstate.NamespaceMetadata()}).err; !apierrors.IsForbidden(err) {
			return fmt.Errorf("the last failure is %w", err)
		}
		return nil
	})
	must(t, cached("a=c b=b")())

	t.Log("A namespace is deleted.")
	must(t, s.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "b"}}))
	s.Grants("get namespaces")
	expect.Soon(t, "the namespace to go", cached("a=c"))
}

// knownPods has a pod in each of these namespaces.
type knownPods struct {
	clusterstate.Pods

	in []string
}

func (p knownPods) Each(_ context.Context, which clusterstate.Which, do func(*lifecycle.Pod) bool) error {
	for _, namespace := range p.in {
		if which == clusterstate.InNamespace(namespace) {
			do(&lifecycle.Pod{})
		}
	}
	return nil
}

// TestLostRights: a manager with Roles loses those in one of its namespaces, a and b.
func TestLostRights(t *testing.T) {
	t.Parallel()
	const stays, leaves = "its pods stay as they were last seen", "it counts as deleted"
	type row struct {
		reason      string
		left, known []string
		leaves      bool
		logged      string
	}
	expect.Each(t, map[string]row{
		"none":               {reason: "all is well", left: []string{"get namespaces", "watch pods"}, known: []string{"a", "b"}},
		"a RoleBinding":      {reason: "healthy pods would leave the registry", known: []string{"a", "b"}, logged: stays},
		"those to read it":   {reason: "its pods are watched", left: []string{"watch pods in b"}, known: []string{"a"}},
		"with the namespace": {reason: "its pods are gone too", known: []string{"a"}, leaves: true, logged: leaves},
		"while it is there":  {reason: "the API server shows whether it is", left: []string{"get namespaces in b"}, known: []string{"a"}},
		"both, and more rights": {
			reason: "a start would lose the pods", left: []string{"list nodes", "watch nodes"}, known: []string{"b"}, logged: stays,
		},
		"those of another list": {reason: "pods elsewhere say nothing", known: []string{"c"}, leaves: true, logged: leaves},
	}, func(t *testing.T, tc row) {
		s := newRolesScenario("get namespaces", "watch pods")
		s.Namespace(t, "a")
		s.Namespace(t, "b")
		var log strings.Builder
		logger := funcr.New(func(_, line string) { log.WriteString(line + "\n") }, funcr.Options{})
		n := newNamespaces(t.Context(), s, service.Namespaces{Names: []string{"a", "b"}}, logger)
		n.pods = knownPods{in: tc.known}
		s.Grants(append(tc.left, "get namespaces in a", "watch pods in a")...)
		if err := n.check(t.Context()); (err != nil) != tc.leaves {
			t.Errorf("%s: the manager exits with %v", tc.reason, err)
		}
		if tc.logged == "" && strings.Contains(log.String(), "missing") || !strings.Contains(log.String(), tc.logged) {
			t.Errorf("%s: it logs %s, want %q", tc.reason, log.String(), tc.logged)
		}
		if tc.logged == "" {
			return
		}
		log.Reset()
		if again := newNamespaces(t.Context(), s, service.Namespaces{Names: []string{"a", "b"}}, logger); !slices.Equal(again.watched, []string{"a"}) {
			t.Errorf("%s: the next one watches %v", tc.reason, again.watched)
		}
		if want := `entries of its pods are not renewed" "error"=null "namespace"="b"`; !strings.Contains(log.String(), want) {
			t.Errorf("%s: the next one logs %s, want %q", tc.reason, log.String(), want)
		}
	})
}

// cacheOfNamespaces runs one that can't reach an API server.
func cacheOfNamespaces(t *testing.T, source *namespaceGets, failures *watchFailures) client.Reader {
	t.Helper()
	pods := clusterstate.NewPodCache(nil)
	options := cacheOptions(source.names, failures.failed, pods, informers(pods, source))
	options.Mapper, _ = mapper(nil, nil)
	options.Scheme = newScheme()
	made, err := cache.New(&rest.Config{Host: "127.0.0.1:1"}, options)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- made.Start(ctx) }()
	t.Cleanup(func() { cancel(); must(t, receive(t, ended)) })
	_, err = made.GetInformer(ctx, clusterstate.NamespaceMetadata(), cache.BlockUntilSynced(false))
	must(t, err)
	return made
}

// namespacesIn returns what holds the cache against names with a label.
func namespacesIn(t *testing.T, cached client.Reader) func(want string) func() error {
	return func(want string) func() error {
		return func() error {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
			if err := cached.List(t.Context(), list); err != nil {
				return err
			}
			var got []string
			for _, one := range list.Items {
				got = append(got, one.Name+"="+one.Labels["team"])
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != want {
				return fmt.Errorf("the cache has %q, want %q", text, want)
			}
			return nil
		}
	}
}
