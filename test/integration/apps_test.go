package integration

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// steeredDriver is the name of a driver that steers applications' entries: the manager under test has it besides its own.
const steeredDriver = "steered"

// steered is the http driver, and another one for the applications' entries, which a server of their own has.
type steered struct {
	*httpregistry.Registry

	apps *httpregistry.Registry
}

func newSteered(ctx context.Context, cfg registry.Config) (registry.Registry, error) {
	var options struct{ Apps string }
	if err := json.Unmarshal(cfg.Options, &options); err != nil {
		return nil, err
	}
	cfg.Options = nil
	own, err := httpregistry.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	cfg.Endpoint = options.Apps
	apps, err := httpregistry.New(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &steered{own.(*httpregistry.Registry), apps.(*httpregistry.Registry)}, nil
}

func (s *steered) AppEntries() registry.AppRegistry { return appEntries{s.apps} }

func (s *steered) Close() error { return errors.Join(s.Registry.Close(), s.apps.Close()) }

// appEntries marks what the protocol does not: that there is no such entry.
type appEntries struct{ *httpregistry.Registry }

func (a appEntries) Register(ctx context.Context, in registry.Instance) error {
	err := a.Registry.Register(ctx, in)
	if err == nil || !strings.Contains(err.Error(), "no application has registered") {
		return err
	}
	err = registry.NotRegistered(err)
	if _, name, renamed := strings.Cut(err.Error(), fakeregistry.SaysOtherName); renamed {
		return registry.OtherNames(err, strings.Fields(name)[0])
	}
	return err
}

// appsServer is a server of applications' entries, and own one of Rollcall's beside it, in which nothing may be written.
type appsServer struct {
	*registryServer

	apps *fakeregistry.Apps
	own  *registryServer
	port int // of the applications
}

func startAppsServer(t *testing.T) appsServer {
	t.Helper()
	apps := &fakeregistry.Apps{}
	server := startRegistry(t, onlyRegistry, registryOptions{})
	server.Replace(apps)
	return appsServer{registryServer: server, apps: apps, own: startRegistry(t, onlyRegistry, registryOptions{}), port: 80}
}

func (a appsServer) section() map[string]any {
	return map[string]any{
		"driver": steeredDriver, "endpoint": a.own.URL(), "timeout": "4s", "registeredBy": "App",
		"options": map[string]any{"apps": a.URL()},
	}
}

// appLag is how long after its pod became ready an application registers.
const appLag = 200 * time.Millisecond

// run plays the applications of a scenario: each registers once its pod is ready, ends when it is not, and comes
// back into rotation with that, as in Eureka and Consul.
func (a appsServer) run(s *scenario) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	ended := make(chan struct{})
	s.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		up := map[fakeregistry.App]time.Time{}
		for ctx.Err() == nil {
			ready := map[fakeregistry.App]bool{}
			for _, pod := range s.Pods() {
				if pod.Status.PodIP != "" && lifecycle.IsReady(pod) && pod.DeletionTimestamp == nil {
					ready[a.of(pod, s.ns)] = true
				}
			}
			follow(up, ready)
			select {
			case <-ctx.Done():
			case <-time.After(glance):
			}
		}
	}()
}

// of is the application in a pod.
func (a appsServer) of(pod *corev1.Pod, service string) fakeregistry.App {
	return a.apps.App(registry.Instance{Service: service, Address: pod.Status.PodIP, Port: a.port})
}

// follow has applications come and go. up holds when each is to register, which is the zero time once it has.
func follow(up map[fakeregistry.App]time.Time, ready map[fakeregistry.App]bool) {
	for app := range up {
		if !ready[app] {
			app.Deregister()
			delete(up, app)
		}
	}
	for app := range ready {
		switch at, known := up[app]; {
		case !known:
			up[app] = time.Now().Add(appLag)
		case !at.IsZero() && time.Now().After(at):
			app.PutBack()
			app.Register()
			up[app] = time.Time{}
		}
	}
}

func TestAppsThatRegisterThemselves(t *testing.T) {
	t.Parallel()
	server := startAppsServer(t)
	styles := []style{labels, preNormal}
	all := []definition{
		{name: "app-in-place", styles: styles, run: inPlaceUpdate},
		{name: "app-recreate", styles: styles, run: recreateUpdate},
		{name: "app-scale", styles: []style{labels}, run: scaleOutAndIn},
		{name: "app-cancel", styles: []style{labels}, run: cancelledScaleInAfterRelease},
		{name: "app-drain", styles: []style{labels}, run: drains},
		{name: "app-deleted", styles: []style{labels}, run: directDelete},
		{name: "app-never", styles: []style{preNormal}, run: appNeverRegisters(server)},
		{name: "app-never-so", styles: []style{preNormal}, run: appHasAnotherName(server)},
		{name: "app-back", styles: []style{labels}, run: appPutsItselfBack(server)},
	}
	var namespaces []string
	for i, d := range all {
		namespaces = append(namespaces, namespacesOf(d.name, d.styles)...)
		all[i].run = func(s *scenario) { d.run(s); server.expectNothingRemembered(s) }
	}
	m := server.startManager(t, "apps", namespaces...)
	play(t, all, func(t *testing.T, style style, namespace string) *scenario {
		t.Helper()
		s := server.begin(t, m, style, namespace)
		if !strings.HasPrefix(namespace, "app-never") {
			server.run(s)
		}
		return s
	})
}

func (a appsServer) startManager(t *testing.T, name string, namespaces ...string) *rollcall {
	t.Helper()
	config := defaultConfiguration("", namespaces...)
	config["registry"] = a.section()
	return startManager(t, name, config)
}

func (a appsServer) begin(t *testing.T, m *rollcall, style style, namespace string) *scenario {
	t.Helper()
	s := newScenario(t, m, a.registryServer, style, namespace)
	s.byApp = true
	s.describes = func(_ *corev1.Pod, in *registry.Instance) { in.Registry, in.Zone = "", "" }
	t.Cleanup(func() {
		if n := len(a.own.Calls(fakeregistry.Match{Op: fakeregistry.OpRegister, Namespace: namespace})); n > 0 {
			t.Errorf("%d entries of Rollcall's own were made beside those of the applications", n)
		}
	})
	return s
}

// expectNothingRemembered ends the workload: the next pods at its pods' addresses start in rotation.
func (a appsServer) expectNothingRemembered(s *scenario) {
	s.Helper()
	s.ExpectNothingLeft()
	s.await("the registry to forget that the applications were out", func() error {
		for _, uid := range s.history.UIDs(s.ns) {
			seen := s.history.Of(uid)
			if pod := seen[len(seen)-1].pod; pod.Status.PodIP != "" && a.of(pod, s.ns).Remembered() {
				return errors.New(pod.Name + " was out, and the next at " + pod.Status.PodIP + " would be")
			}
		}
		return nil
	})
}

// TestAppsOutliveTheManager: what the manager took out before it was killed, the next one puts back.
func TestAppsOutliveTheManager(t *testing.T) {
	t.Parallel()
	server := startAppsServer(t)
	m := server.startManager(t, "apps-restart", "app-restart")
	s := server.begin(t, m, labels, "app-restart")
	server.run(s)
	s.troubled, s.drain = true, 5*time.Second
	before := s.Begin(inPlace, replicas(1), annotated("rollcall.dev/drain", s.drain.String()))
	s.UpdateImage("nginx:2")
	s.AwaitState(before[0], appspub.LifecycleStatePreparingUpdate)
	s.until("the application to be out of rotation", func() bool { return !s.registry.gives(t, s.ns, before[0]) })
	m.Kill()
	restart(t, m)
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)
	server.expectNothingRemembered(s)
	s.ExpectAlways()
}

// appNeverRegisters: its pod waits, says what was looked for, and is found when it comes.
func appNeverRegisters(server appsServer) func(*scenario) {
	return func(s *scenario) {
		s.Create(replicas(1))
		pod := s.AwaitPods(1)[0]
		s.ExpectEvent(pod, corev1.EventTypeWarning, "AppNotRegistered", "hook preNormal waits", "no application has registered "+s.ns)
		s.ExpectNeverSeen(pod, appspub.LifecycleStateNormal)
		server.run(s)
		s.ExpectSteady()
		s.ExpectEvent(pod, corev1.EventTypeNormal, "Resolved", "AppNotRegistered")
	}
}

// appHasAnotherName: its pod waits and says which, and that entry stays in.
func appHasAnotherName(server appsServer) func(*scenario) {
	return func(s *scenario) {
		s.Create(replicas(1))
		pod := s.AwaitPod("with an address", func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" })
		other := server.of(pod, s.ns+"-v2")
		other.Register()
		s.ExpectEvent(pod, corev1.EventTypeWarning, "AppOtherName", "hook preNormal waits", `under ["`+s.ns+`-v2"]: name that in the annotation`)
		s.ExpectNeverSeen(pod, appspub.LifecycleStateNormal)
		s.Expect(other.State() == registry.InService, "the entry under the other name is %s", other.State())
		server.run(s)
		s.ExpectSteady()
		s.ExpectEvent(pod, corev1.EventTypeNormal, "Resolved", "AppOtherName")
	}
}

// appPutsItselfBack: it is taken out again while its pod drains, which is said once, and the drain begins anew.
func appPutsItselfBack(server appsServer) func(*scenario) {
	return func(s *scenario) {
		s.troubled, s.drain = true, 8*time.Second
		pod := s.Begin(inPlace, replicas(1), annotated("rollcall.dev/drain", s.drain.String()))[0]
		app := server.of(pod, s.ns)
		s.UpdateImage("nginx:2")
		out := func() error {
			if app.State() != registry.OutOfService {
				return errors.New("it is " + string(app.State()))
			}
			return nil
		}
		s.await("the application to be out of rotation", out)
		for range 2 {
			app.PutBack()
			s.await("the application to be out of rotation again", out)
		}
		s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStatePreparingUpdate), "the drain was over while clients found the pod")
		s.ExpectSteady()
		s.ExpectEvent(pod, corev1.EventTypeWarning, "AppCameBack", "taken out again")
		said := 0
		for _, e := range s.Events() {
			if e.Reason == "AppCameBack" {
				said++
				s.Expect(e.Series == nil, "it was said %v", e.Series)
			}
		}
		s.Expect(said == 1, "it was said %d times", said)
	}
}

// appsWhereTheyCantBeSteered: the registry's driver can't do what the pod asks for, and the pod says so.
func appsWhereTheyCantBeSteered(s *scenario) {
	const by = "rollcall.dev/registered-by"
	s.Create(replicas(1), annotated(by, "app"))
	s.expectBlockedUntilCorrected("InvalidPod", []string{by, "can't take an entry out", "docs/self-registration.md"}, by, "rollcall")
}
