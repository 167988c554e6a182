package integration

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// The names that docs/moving-over/README.md has.
const (
	shop, web     = "shop", "web"
	registriesKey = "rollcall.dev/registries"
)

// TestMovingOver plays docs/moving-over/README.md by the commands that stand there, with each way back, on a real Consul in which
// applications register themselves. No request is lost on the way.
func TestMovingOver(t *testing.T) {
	t.Parallel()
	m := startMove(t)
	one, two, three, four := m.section("## 1."), m.section("## 2."), m.section("## 3."), m.section("## 4.")
	client, stop := sendRequests(t, m.instances)

	t.Log("Dry run.")
	dry := strings.Split(strings.TrimSpace(one.blocks[0]), "\n")
	m.run(dry[0])
	m.awaitOutput(dry[1], func(lines []string) error { return m.namesEachPod(lines) })
	m.run(dry[2])
	m.expectLook(m.byNode)
	agents := m.run(strings.NewReplacer(":8500", ":"+m.port, "$NODE_IP", "127.0.0.1", "$TOKEN", "").Replace(one.blocks[1]))
	m.expect(agents == "200\n", "the agent answers %q", agents)

	t.Log("One workload, by its annotation.")
	m.restart("")
	m.run(two.blocks[0])
	m.expectSteered()
	m.awaitRollout("web:1", true)
	m.expectNoEvents(two.blocks[1])
	m.update("web:2", "app")
	m.expectMaintenance(func() { m.run(two.blocks[2]) })
	m.awaitRollout("web:2", true)
	m.run(two.back)
	m.expectLook(m.byNode)

	t.Log("All, by the configuration and the namespace.")
	m.config["enroll"] = true
	m.restart("App")
	m.expectNoEvents(three.blocks[0])
	m.awaitRollout("web:2", true)
	m.update("web:3", "app")
	m.awaitRollout("web:3", true)
	m.run(three.back)
	m.awaitRollout("web:3", false)
	m.expectLook(m.byNode)

	t.Log("Rollcall's own entries, and back.")
	m.run(strings.SplitN(three.blocks[0], "\n", 2)[0])
	m.awaitRollout("web:3", true)
	m.update("web:4", "rollcall")
	m.awaitRollout("web:4", true)
	m.expectLook(m.byPod)
	m.expectNoEvents(four.blocks[0])
	m.update("web:5", "app")
	m.awaitRollout("web:5", true)
	m.run(three.back)
	m.awaitRollout("web:5", false)
	m.expectLook(m.byNode)

	stop()
	tally := client.Tally()
	m.expect(tally.Requests > enoughRequests && tally.Failed == 0, "%s: %v", tally, client.Failures())
	t.Logf("moving over: %s", tally)
}

// expectSteered expects that no pod is taken for one whose entry Rollcall writes, those that are yet to be updated among them.
func (m *move) expectSteered() {
	m.Helper()
	var pods corev1.PodList
	expect.NoError(m, env.client.List(m.Context(), &pods, client.InNamespace(shop)))
	for _, pod := range pods.Items {
		m.expect(pod.Annotations[registriesKey] == "default=app", "%s has %s=%q", pod.Name, registriesKey, pod.Annotations[registriesKey])
	}
}

// enoughRequests make a result that means something.
const enoughRequests = 500

// move is a CloneSet that moves over.
type move struct {
	*testing.T

	server  *consul.Server
	port    string // of the server
	manager *rollcall
	config  configuration
	page    string
	look    string
	sh      *shell
}

func startMove(t *testing.T) *move {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "moving-over", "README.md"))
	expect.NoError(t, err)
	m := &move{T: t, page: string(page)}
	m.server = registries.Use(t, registries.With(consul.Start, consul.Options{}))
	at, err := url.Parse(m.server.URL)
	expect.NoError(t, err)
	_, m.look, _ = strings.Cut(m.section("# Move over").blocks[0], "# Consul")
	m.look, _, _ = strings.Cut("#"+m.look, "# Eureka")
	m.port = at.Port()
	m.config = defaultConfiguration("", shop)
	m.config["drain"] = (2 * (rollout.RefreshEvery + rollout.RequestTimeout)).String()
	m.config["registry"] = map[string]any{
		"driver": "consul", "endpoint": m.server.URL, "timeout": callTimeout.String(), "registeredBy": "App",
		"options": map[string]any{"agentEndpoint": "http://{nodeIP}:" + m.port},
	}
	install(t, "enroll", shop)
	// A dry run, with which a move begins, makes no Lease.
	expect.NoError(t, client.IgnoreNotFound(env.client.Delete(t.Context(), account.LeaseGivenBack(account.Namespace))))
	m.manager = startManager(t, "moving-over", m.config, "--dry-run")
	m.startShell()
	expect.NoError(t, env.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	expect.NoError(t, env.client.Create(t.Context(), m.config.configMap("rollcall-system")))
	port := podserver.Use(t, env.client)
	m.runApps(port)
	m.createSet(port)
	m.expectLook(m.byNode)
	return m
}

// startShell has a shell whose kubectl shows the log of this manager.
func (m *move) startShell() {
	m.Helper()
	for _, program := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			m.Skipf("the page's commands need %s: %v", program, err)
		}
	}
	m.sh = newShell(m.T, env.cluster)
	m.sh.patient = true
	m.sh.env = append(m.sh.env, "CONSUL="+m.server.URL)
	kubectl := filepath.Join(m.sh.dir, "bin", "kubectl")
	program, err := os.Readlink(kubectl)
	expect.NoError(m.T, err)
	expect.NoError(m.T, os.Remove(kubectl))
	script := fmt.Sprintf("#!/bin/bash\ncase \"$*\" in *'logs deploy/rollcall') exec cat %q ;; esac\nexec %q \"$@\"\n", m.manager.LogPath(), program)
	expect.NoError(m.T, os.WriteFile(kubectl, []byte(script), 0o755))
}

func (m *move) createSet(port int) {
	m.Helper()
	set := labels.load(m.T)
	for _, edit := range []func(*kruisev1alpha1.CloneSet){inPlace, replicas(3), image("web:1"), unhooked} {
		edit(set)
	}
	set.Namespace, set.Name = shop, web
	set.Spec.Selector.MatchLabels = map[string]string{"app": web}
	set.Spec.Template.Labels = map[string]string{"app": web}
	set.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort = int32(port)
	expect.NoError(m.T, env.client.Create(m.Context(), set))
}

// runApps plays the applications: each registers itself by Consul's own command while its container runs, unless it is one of
// those whose registration is turned off with the annotation.
func (m *move) runApps(port int) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.Context()))
	var ended sync.WaitGroup
	m.Cleanup(func() { cancel(); ended.Wait() })
	ended.Go(func() {
		up := map[string]bool{}
		for ctx.Err() == nil {
			running := map[string]string{}
			for _, pod := range m.pods() {
				if podserver.CanServe(&pod) && pod.Annotations[registriesKey] != "default=rollcall" {
					running[pod.Name] = pod.Status.PodIP
				}
			}
			for name, ip := range running {
				if !up[name] && m.server.Run(ctx, "services", "register", "-id="+name, "-name="+web, "-address="+ip, fmt.Sprintf("-port=%d", port)) == nil {
					up[name] = true
				}
			}
			for name := range up {
				if _, runs := running[name]; !runs && m.server.Run(ctx, "services", "deregister", "-id="+name) == nil {
					delete(up, name)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(glance):
			}
		}
	})
}

func (m *move) pods() []corev1.Pod {
	pods, err := kube.Pods(context.WithoutCancel(m.Context()), env.client, shop)
	if err != nil {
		m.Error(err)
	}
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil || pod.Status.PodIP == "" })
}

// instances are what clients find in Consul, with the pods that they belong to.
func (m *move) instances(ctx context.Context) ([]registry.Entry, error) {
	entries, err := read.Consul(m.server.URL, web)(ctx)
	pods := m.pods()
	for i := range entries {
		for _, pod := range pods {
			if pod.Status.PodIP == entries[i].Address {
				entries[i].Pod, entries[i].UID = pod.Name, string(pod.UID)
			}
		}
	}
	return entries, err
}

// pagePart is what stands under a heading: its commands, and the one that leads back.
type pagePart struct {
	blocks []string
	back   string
}

func (m *move) section(heading string) (s pagePart) {
	m.Helper()
	_, text, found := strings.Cut(m.page, heading)
	m.expect(found, "the page has no %q", heading)
	text, _, _ = strings.Cut(text, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```sh[ a-z]*\n(.*?)```").FindAllStringSubmatch(text, -1) {
		s.blocks = append(s.blocks, block[1])
	}
	if back := regexp.MustCompile("Way back: `(.*?)`").FindStringSubmatch(text); back != nil {
		s.back = back[1]
	}
	return s
}

func (m *move) expect(so bool, format string, args ...any) {
	m.Helper()
	if !so {
		m.Fatalf(format, args...)
	}
}

// run runs commands of the page, and returns what they print.
func (m *move) run(commands string) string {
	m.Helper()
	out, err := m.sh.run("set -eu\n" + commands)
	m.expect(err == nil, "%s\n%v\n%s", commands, err, out)
	return out
}

// awaitOutput repeats a command until it prints what it has to.
func (m *move) awaitOutput(command string, wrong func(lines []string) error) {
	m.Helper()
	expect.Soon(m.T, command, func() error {
		out, err := m.sh.run(command)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return wrong(strings.Split(strings.TrimSpace(out), "\n"))
	}, m.manager.Tail)
}

func (m *move) expectLook(wrong func(lines []string) error) {
	m.Helper()
	m.awaitOutput(m.look, wrong)
}

func (m *move) namesEachPod(lines []string) error {
	for _, pod := range m.pods() {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, pod.Status.PodIP) }) {
			return fmt.Errorf("no line names %s at %s: %q", pod.Name, pod.Status.PodIP, lines)
		}
	}
	return nil
}

// byNode and byPod are a line for each pod, in rotation, as the application writes it and as Rollcall does.
func (m *move) byNode(lines []string) error {
	return m.eachBy(lines, func(corev1.Pod) string { return consul.Node })
}

func (m *move) byPod(lines []string) error {
	return m.eachBy(lines, func(pod corev1.Pod) string { return pod.Name })
}

func (m *move) eachBy(lines []string, by func(corev1.Pod) string) error {
	pods := m.pods()
	for _, pod := range pods {
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, pod.Status.PodIP+":") && strings.HasSuffix(line, "  "+by(pod))
		}) {
			return fmt.Errorf("no line for %s by %s: %q", pod.Name, by(pod), lines)
		}
	}
	if len(lines) != len(pods) || len(pods) != 3 {
		return fmt.Errorf("got %q for %d pods", lines, len(pods))
	}
	return nil
}

// expectMaintenance has the look show a pod out of rotation while something is done.
func (m *move) expectMaintenance(do func()) {
	m.Helper()
	ended := make(chan struct{})
	go func() { defer close(ended); do() }()
	shown := false
	for done := false; !done; {
		out, err := m.sh.run(m.look)
		shown = shown || err == nil && strings.Contains(out, "_service_maintenance:")
		select {
		case <-ended:
			done = true
		case <-time.After(glance):
		}
	}
	m.expect(shown, "no look showed a pod out of rotation")
}

// expectNoEvents: none of the Events that the commands ask for is about the namespace.
func (m *move) expectNoEvents(commands string) {
	m.Helper()
	for line := range strings.Lines(m.run(commands)) {
		m.expect(!strings.Contains(line, "Warning") || !strings.Contains(line, "/"+web), "%s\n%s", commands, line)
	}
}

func (m *move) restart(registeredBy string) {
	m.Helper()
	section := m.config["registry"].(map[string]any)
	if section["registeredBy"] = registeredBy; registeredBy == "" {
		delete(section, "registeredBy")
	}
	expect.NoError(m.T, m.manager.Configure(m.config))
	m.manager.Kill()
	m.manager.Flags = nil // --dry-run
	restart(m.T, m.manager)
}

func (m *move) update(image, by string) {
	m.Helper()
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: web}}
	expect.NoError(m.T, kube.Change(m.Context(), env.client, set, func() {
		set.Spec.Template.Spec.Containers[0].Image = image
		set.Spec.Template.Annotations = map[string]string{registriesKey: "default=" + by}
	}))
}

// awaitRollout waits until all pods run the image and are ready, with a label or without Rollcall's.
func (m *move) awaitRollout(image string, armed bool) {
	m.Helper()
	expect.Soon(m.T, "the rollout of "+image, func() error {
		pods, err := rollout.CloneSet{K8s: env.client, Key: client.ObjectKey{Namespace: shop, Name: web}}.Settled(m.Context(), nil)
		for _, pod := range pods {
			if _, has := pod.Labels[lifecycle.LabelPreNormal]; has != armed {
				return fmt.Errorf("%s has label %s: %t", pod.Name, lifecycle.LabelPreNormal, has)
			}
		}
		return err
	}, m.manager.Tail)
}
