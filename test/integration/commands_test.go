package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/servers"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/guide"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// TestCommandsOfTheGuides runs what the README and docs say, on a cluster of its own: first the ways to install Rollcall, one
// after the other, and then page by page what they have kubectl do, on two CloneSets that run, with a manager that has the
// flags of the pages.
func TestCommandsOfTheGuides(t *testing.T) {
	t.Parallel()
	own, err := cluster.Start(t.Context(), cluster.Options{
		Dir: filepath.Join(env.dir, "guides-cluster"), Log: os.Stderr, Nodes: 1, PodCIDR: "127.102.0.0/16",
	})
	expect.NoError(t, err)
	t.Cleanup(own.Stop)
	sh := newShell(t, own)
	sh.expectInstalls(own.Client())
	pod := sh.expectToManage(own, own.Client())
	sh.expectCommands(pod)
	// As the shell of a person asks for what may follow.
	for text, want := range map[string]string{
		"kubectl __complete rollcall explain -n prod web- 2>/dev/null": pod + "\n",
		"kubectl __complete rollcall rollout -n shop w 2>/dev/null":    "web\n",
	} {
		if out, err := sh.run(text); err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%s: %v, want %q\n%s", text, err, want, out)
		}
	}
}

// shell is that of a person who reads the guides: with kubectl, the plugin, Helm and a kubeconfig.
type shell struct {
	*testing.T

	root, dir string
	env       []string
	commands  []guide.Command
	// patient lets a command that watches go on until it ends by itself.
	patient bool
}

func newShell(t *testing.T, own *cluster.Cluster) *shell {
	t.Helper()
	sh := &shell{T: t, dir: t.TempDir()}
	var err error
	sh.root, err = filepath.Abs("../..")
	expect.NoError(t, err)
	sh.commands, err = guide.Commands(sh.root)
	expect.NoError(t, err)
	bin := filepath.Join(sh.dir, "bin")
	expect.NoError(t, os.Mkdir(bin, 0o700))
	for _, name := range []string{"kubectl", "helm"} {
		path, err := servers.Client(t.Context(), name, os.Stderr)
		expect.NoError(t, err)
		expect.NoError(t, os.Symlink(path, filepath.Join(bin, name)))
	}
	plugin := filepath.Join(bin, "kubectl-rollcall")
	expect.NoError(t, manager.Build(t.Context(), "github.com/rollcall-dev/rollcall/cmd/kubectl-rollcall", plugin))
	expect.NoError(t, os.Symlink(plugin, filepath.Join(bin, "kubectl_complete-rollcall")))
	sh.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+own.Kubeconfig(), "EDITOR=true")
	return sh
}

// watches matches a command that goes on until a person ends it.
var watches = regexp.MustCompile(`rollcall .* (--watch|-w)\b`)

// run runs a command. One that watches is ended as soon as it has shown something, unless the shell is patient.
func (sh *shell) run(text string) (string, error) {
	ctx, cancel := context.WithTimeout(sh.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", text)
	command.Dir, command.Env, command.Stdin = sh.dir, sh.env, strings.NewReader("no\n")
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	out := &shown{}
	if !sh.patient && watches.MatchString(text) {
		out.first = func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	}
	command.Stdout, command.Stderr = out, out
	err := command.Run()
	if ended, is := command.ProcessState.Sys().(syscall.WaitStatus); is && out.first != nil && ended.Signal() == syscall.SIGTERM {
		err = nil
	}
	return string(out.text), err
}

// shown is what a command prints. It is no bytes.Buffer, which a command would fill past Write.
type shown struct {
	text  []byte
	once  sync.Once
	first func()
}

func (s *shown) Write(text []byte) (int, error) {
	if s.first != nil {
		s.once.Do(s.first)
	}
	s.text = append(s.text, text...)
	return len(text), nil
}

// expectInstalls runs what the README installs Rollcall with, and then removes it again. The files of the release are those that
// make release makes of this checkout, which make verify-release holds.
func (sh *shell) expectInstalls(k8s client.Client) {
	sh.Helper()
	const release = "https://github.com/rollcall-dev/rollcall/releases/download/v0.1.0"
	dist := sh.TempDir()
	if out, err := sh.run("make --no-print-directory --silent -C " + sh.root + " render IMG=ghcr.io/rollcall-dev/rollcall:v0.1.0 >" + dist +
		"/install.yaml && cd " + dist + " && sha256sum install.yaml >checksums.txt"); err != nil {
		sh.Fatalf("making a release: %v\n%s", err, out)
	}
	here := strings.NewReplacer(release+"/rollcall-0.1.0.tgz", sh.root+"/charts/rollcall", release, "file://"+dist, "make ", "make -C "+sh.checkout()+" ")
	ways := []struct{ begins, image, undo string }{
		{"make deploy", "rollcall:dev", "make undeploy"},
		{`"${EDITOR:-vi}" install.yaml && kubectl apply`, "ghcr.io/rollcall-dev/rollcall:v0.1.0", "kubectl delete -f install.yaml"},
		{"helm install", "ghcr.io/rollcall-dev/rollcall:dev", "helm uninstall rollcall -n rollcall-system --no-hooks"}, // no node runs its Job
	}
	for _, c := range sh.commands {
		if !c.Has(guide.Install) || strings.HasPrefix(c.Text, "make docker-build") || strings.HasPrefix(c.Text, "kind ") {
			continue // the two take a container engine
		}
		if out, err := sh.run(here.Replace(c.Text)); err != nil {
			sh.Fatalf("%s: %v\n%s", c, err, out)
		}
		if len(ways) == 0 || !strings.HasPrefix(c.Text, ways[0].begins) {
			continue
		}
		deployment := &appsv1.Deployment{}
		expect.NoError(sh.T, k8s.Get(sh.Context(), client.ObjectKey{Namespace: "rollcall-system", Name: "rollcall"}, deployment))
		if got := deployment.Spec.Template.Spec.Containers[0].Image; got != ways[0].image {
			sh.Errorf("%s\ninstalls the image %s, want %s", c, got, ways[0].image)
		}
		if out, err := sh.run(here.Replace(ways[0].undo)); err != nil {
			sh.Fatalf("%s: %v\n%s", ways[0].undo, err, out)
		}
		ways = ways[1:]
	}
	if len(ways) > 0 {
		sh.Errorf("the README does not install by %v", ways)
	}
}

// checkout returns one in which the configuration has been edited as the README asks. In one that has not, make deploy refuses.
func (sh *shell) checkout() (dir string) {
	sh.Helper()
	dir = sh.TempDir()
	expect.NoError(sh.T, os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(sh.root, "config"))))
	for _, name := range []string{"Makefile", "go.mod", "go.sum", "hack"} {
		expect.NoError(sh.T, os.Symlink(filepath.Join(sh.root, name), filepath.Join(dir, name)))
	}
	expectRefused := func(command, why string) {
		if out, err := sh.run("make -C " + dir + " " + command); err == nil || !strings.Contains(out, why) {
			sh.Errorf("make %s: %v, want %q in\n%s", command, err, why, out)
		}
	}
	expectRefused("deploy IMG=rollcall:dev", "set your registry in config/default/configmap.yaml")
	file := filepath.Join(dir, "config/default/configmap.yaml")
	text, err := os.ReadFile(file)
	expect.NoError(sh.T, err)
	edited := strings.NewReplacer("driver: http", "driver: memory", "      endpoint: https://registry.example.com\n", "").Replace(string(text))
	expect.NoError(sh.T, os.WriteFile(file, []byte(edited), 0o600))
	expectRefused("deploy", "set IMG")
	return dir
}

// expectToManage starts a manager and a CloneSet in each of the namespaces that the pages name, and returns a pod of the first.
func (sh *shell) expectToManage(own *cluster.Cluster, k8s client.WithWatch) string {
	sh.Helper()
	as, err := account.Install(sh.Context(), own.Config())
	expect.NoError(sh.T, err)
	r := startRegistry(sh.T)
	config := defaultConfiguration(r.URL(), "prod", "shop")
	config["enroll"], config["podCondition"] = true, true
	for _, object := range slices.Concat([]client.Object{config.configMap("rollcall-system")}, readComponent(sh.T, "enroll"), readComponent(sh.T, "pod-condition")) {
		expect.NoError(sh.T, k8s.Create(sh.Context(), object))
	}
	m := prepareManager(sh.T, "guides", as, config, "--leader-elect=true", "--leader-election-namespace=rollcall-system")
	restart(sh.T, m)
	pods, err := watchPods(sh.Context(), k8s)
	expect.NoError(sh.T, err)
	first := ""
	for namespace, app := range map[string]string{"prod": "web", "shop": "shop"} {
		s := newScenarioOn(sh.T, k8s, pods, m, r, labels, namespace)
		s.Create(replicas(1), unhooked, func(set *kruisev1alpha1.CloneSet) {
			set.Name, set.Spec.Selector.MatchLabels["app"], set.Spec.Template.Labels["app"] = "web", app, app
		})
		if pod := s.AwaitRunning(); namespace == "prod" {
			first = pod.Name
		}
	}
	return first
}

// expectCommands runs the commands of the pages in their order, with the pod where they name one.
func (sh *shell) expectCommands(pod string) {
	sh.Helper()
	for name, content := range map[string]string{
		"ca.crt": "", "tls.crt": "", "tls.key": "", "token": "", "kustomization.yaml": "resources: [web.yaml]", "web.yaml": selectsItsHook,
	} {
		expect.NoError(sh.T, os.WriteFile(filepath.Join(sh.dir, name), []byte(content), 0o600))
	}
	fill := strings.NewReplacer("POD", pod, "CLONESET", "web", "FILE", sh.root+"/config/samples/cloneset_labels.yaml",
		"KEY", "example.com/gate", "VALUE", "true", "DIGEST", "0a1b", "config/samples/", sh.root+"/config/samples/")
	// What fails in this cluster says so.
	refused := map[string]string{
		"kubectl rollcall resync --approve":                           "no Event in namespace rollcall-system",
		"kubectl kustomize . | kubectl rollcall lint -":               "CloneSet prod/web: label example.com/delete is in spec.selector",
		"kubectl rollcall uninstall --dry-run":                        "objects that depend on Rollcall",
		"kubectl rollcall uninstall":                                  "nothing was changed",
		"kubectl rollcall uninstall --free-pods --config config.yaml": "open config.yaml: no such file or directory",
	}
	if out, err := sh.run("kubectl config set-context --current --namespace=prod"); err != nil {
		sh.Fatalf("choosing the namespace: %v\n%s", err, out)
	}
	ran, shown := 0, 0
	for _, c := range sh.commands {
		if !strings.HasPrefix(c.Text, "kubectl ") || len(c.Marks) > 0 {
			continue
		}
		ran++
		of := pod
		if strings.Contains(c.Text, "sample-") {
			names, err := sh.run("kubectl get pods -l app=sample -o jsonpath='{.items[0].metadata.name}'")
			expect.NoError(sh.T, err)
			of = names
		}
		sh.patient = c.Page == "README.md"
		out, err := sh.run(podName.ReplaceAllString(fill.Replace(c.Text), of))
		if want := refused[c.Text]; (err != nil) != (want != "") || !strings.Contains(out, want) {
			sh.Errorf("%s\nends with %v, want %q in\n%s", c, err, want, out)
		}
		if c.Page == "README.md" {
			shown++
			sh.expectShown(c, out)
		}
	}
	if shown < 5 {
		sh.Errorf("the README shows the output of %d commands: the test looks for the wrong thing", shown)
	}
	if ran < 35 {
		sh.Errorf("%d commands were run: the test looks for the wrong thing", ran)
	}
}

// podName matches one of a page.
var podName = regexp.MustCompile(`\b(?:web|sample)-[a-z0-9]{5}\b`)

// rowOfPod matches a row of a table, whose states depend on the moment.
var rowOfPod = regexp.MustCompile(`^POD (?:new|old|[A-Z][a-z]+[A-Za-z]* )`)

// expectShown checks that the command prints the lines that the page shows, but for names, addresses, numbers and the rows of pods.
func (sh *shell) expectShown(c guide.Command, out string) {
	sh.Helper()
	namespace := strings.NewReplacer("default/", "NAMESPACE/", "prod/", "NAMESPACE/")
	general := func(line string) string {
		line = namespace.Replace(podName.ReplaceAllString(line, "POD"))
		return strings.Join(strings.Fields(regexp.MustCompile(`[0-9]+`).ReplaceAllString(
			regexp.MustCompile(`\b([0-9]+(ms|h|m|s))+\b|\b[0-9]+(\.[0-9]+){3}:[0-9]+`).ReplaceAllString(line, "0"), "0")), " ")
	}
	printed := map[string]bool{}
	for line := range strings.Lines(out) {
		printed[general(line)] = true
	}
	for line := range strings.Lines(c.Output) {
		if line := general(line); line != "" && line != "…" && !rowOfPod.MatchString(line) && !printed[line] {
			sh.Errorf("%s\nshows %q, which is not in\n%s", c, line, out)
		}
	}
}

const selectsItsHook = `
apiVersion: apps.kruise.io/v1alpha1
kind: CloneSet
metadata: {name: web, namespace: prod}
spec:
  selector: {matchLabels: {app: web, example.com/delete: "true"}}
  lifecycle: {preDelete: {labelsHandler: {example.com/delete: "true"}}}
  template:
    metadata: {labels: {app: web, example.com/delete: "true"}}
    spec: {containers: [{name: web, image: nginx, ports: [{containerPort: 80}]}]}
`
