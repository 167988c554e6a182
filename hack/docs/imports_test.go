package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const ours = "github.com/rollcall-dev/rollcall/"

// room is what a package may import. Names are of internal, unless they begin with registry, cmd or test.
type room struct {
	// why is for who may not import what they want to.
	why string
	// imports are those of this module, separated by spaces.
	imports string
	// others are the modules of others, and what begins with them: * for all. The standard library is free.
	others string
	// pure rooms wait for nothing, make no calls, write nothing and keep nothing: no context, net, log, os or sync. calm ones may
	// look at addresses and keep things behind a lock, but wait for nothing.
	pure, calm bool
}

const (
	kubernetes = "k8s.io/api k8s.io/apimachinery"
	kruise     = kubernetes + " github.com/openkruise/kruise-api"
)

// rooms are all packages of the product. Who adds one decides here what it sees.
func rooms() map[string]room {
	driver := room{
		why: "a driver sees the contract and the kit, and nothing of Kubernetes", imports: "registry registry/driverkit",
		others: "go.etcd.io google.golang.org go.uber.org/zap github.com/go-zookeeper golang.org/x",
	}
	all := map[string]room{
		"registry":              {why: "drivers' authors build on it: the standard library, nothing else"},
		"registry/driverkit":    {why: "what drivers share: the contract, and the standard library", imports: "registry"},
		"registry/registrytest": {why: "the conformance suite: the contract, and the standard library", imports: "registry"},

		// Pure.
		"reason":    {why: "a list of words", others: "k8s.io/api", pure: true},
		"shorten":   {why: "what messages repeat", pure: true},
		"place":     {why: "the key of a service in a place", pure: true},
		"suggest":   {why: "the word that a person meant", others: "github.com/agnivade/levenshtein", pure: true},
		"lifecycle": {why: "what a pod's state asks for", imports: "place suggest registry", others: kruise, pure: true},
		"drain": {
			why: "how long a pod stays up", imports: "lifecycle shorten suggest", others: "go.yaml.in/yaml/v3 k8s.io/apimachinery", pure: true,
		},
		"service": {
			why:     "what an instance is, which addresses a pod has, and the word that a person meant",
			imports: "drain lifecycle place shorten suggest registry", others: kubernetes + " golang.org/x/text", pure: true,
		},
		"plan":    {why: "a pod's changes in their order", imports: "drain lifecycle reason tracker waiting registry", pure: true},
		"history": {why: "the lines about pods, and what must not have happened", others: "github.com/go-logr/logr", pure: true},

		// They remember, and wait for nothing.
		"waiting": {why: "why a pod waits", imports: "drain lifecycle reason shorten registry", calm: true},
		"memory": {
			why: "what the reconciler tells it", imports: "lifecycle metrics reason waiting", others: kubernetes + " golang.org/x/time", calm: true,
		},
		"tracker": {why: "what this process knows", imports: "lifecycle reason registry", others: "k8s.io/apimachinery", calm: true},
		"orders":  {why: "the words of a person on the Lease"},
		"metrics": {why: "it counts what others tell it", others: "github.com/prometheus/client_golang"},

		// They read, call and write.
		"clusterstate":   {why: "what all pods and workloads together say: it reads", imports: "lifecycle reason service", others: "*"},
		"podqueue":       {why: "which pods a rollout waits for", imports: "lifecycle", others: "*"},
		"registryclient": {why: "it makes calls, whoever asks for them", imports: "history metrics place registry", others: "github.com/go-logr github.com/sony"},
		"idle": {
			why: "it asks what it is told to ask, and decides nothing", imports: "drain lifecycle",
			others: "k8s.io github.com/prometheus golang.org/x",
		},
		"observe": {
			why:     "what a visit rests on: it knows neither what is done with its facts nor who asks",
			imports: "clusterstate drain lifecycle memory plan reason registryclient service tracker waiting registry", others: "*",
		},
		"visit": {
			why:     "it takes a pod as far as it can go, and does not say why it waits",
			imports: "clusterstate drain history lifecycle metrics observe plan reason registryclient service tracker waiting registry",
			others:  "*",
		},
		"report": {
			why: "it tells people what a visit came to", imports: "lifecycle memory observe reason shorten visit waiting",
			others: "*",
		},
		"controller": {
			why:     "it takes a pod through the rooms, and sees no driver and no config",
			imports: "clusterstate history lifecycle memory metrics observe podqueue reason report tracker visit waiting", others: "*",
		},
		"resync": {
			why:     "it compares, and removes what no pod stands behind; what becomes of live pods is the reconciler's",
			imports: "clusterstate history lifecycle metrics orders place reason registryclient tracker registry", others: "*",
		},
		"endpointslice": {why: "a driver with a cache for a registry", imports: "lifecycle registry registry/driverkit", others: "*"},
		"evictions": {
			why:     "it answers the API server: no registry, and nothing of what this process remembers",
			imports: "clusterstate drain lifecycle reason service", others: "*",
		},
		"config": {
			why: "the settings of registry, lifecycle and service", imports: "drain lifecycle service suggest registry",
			others: "k8s.io/apimachinery sigs.k8s.io/json sigs.k8s.io/yaml",
		},
		"lint": {
			why:     "what in a CloneSet can't work; it asks no API server",
			imports: "clusterstate config lifecycle service suggest registry registry/driverkit", others: kruise,
		},
		"enroll": {
			why: "it writes CloneSets, and sees no pod and no registry", imports: "clusterstate config lifecycle lint reason", others: "*",
		},
		"uninstall":          {why: "what waits in the cluster; it calls no registry", imports: "clusterstate config lifecycle", others: "*"},
		"statuspage/entries": {why: "what the page and the plugin show", imports: "lifecycle orders", others: "k8s.io/apimachinery"},
		"statuspage": {
			why:     "it shows what the others say, and asks no registry and no API server",
			imports: "lifecycle metrics orders reason registryclient resync statuspage/entries tracker", others: "k8s.io/apimachinery",
		},
		"settings": {
			why: "what a configuration comes to", imports: "clusterstate config observe registryclient",
		},
		"rights": {
			why: "what the manager must be allowed; those with a client ask", imports: "clusterstate config", others: "k8s.io/api",
		},
		"preview": {
			why:     "what would be done: it observes pods, and neither visits nor reports them",
			imports: "clusterstate config enroll lifecycle lint memory observe reason registryclient settings tracker registry", others: "*",
		},
		"plugin": {
			why: "it decides by the manager's rules, and a preview calls the registries",
			imports: "clusterstate config enroll evictions history lifecycle lint orders preview reason rights service statuspage/entries suggest " +
				"uninstall registry", others: "*",
		},

		"cmd/app": {
			why: "it sees all but the drivers, which a main gives it",
			imports: "clusterstate config controller endpointslice enroll evictions history idle lifecycle metrics observe orders reason " +
				"registryclient resync rights service settings shorten statuspage statuspage/entries suggest tracker uninstall registry",
			others: "*",
		},
		"cmd/builtin":          {why: "it adds the drivers that ship", imports: "cmd/app drivers"},
		"cmd":                  {why: "it starts", imports: "cmd/app cmd/builtin"},
		"cmd/kubectl-rollcall": {why: "it starts the plugin", imports: "drivers plugin", others: "*"},
	}
	builtin := room{why: "the one place that knows every driver", imports: "registry"}
	for _, name := range []string{"consul", "etcd", "eureka", "http", "memory", "nacos", "pod", "zookeeper"} {
		all["registry/"+name] = driver
		builtin.imports += " registry/" + name
	}
	all["drivers"] = builtin
	return all
}

// checker judges the product. It shares no rule with it: a mistake there would blind both.
func checker() room {
	return room{
		why:     "the judge sees what the API server and the registries have, and none of the product",
		imports: "registry test/harness/apiproxy test/harness/expect", others: "*",
	}
}

type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func list(t *testing.T, patterns ...string) (all []goPackage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,TestImports,XTestImports"}, patterns...)...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	expect.NoError(t, err)
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) { //nolint:musttag // go list writes the names as they are
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestImports: each package of the product sees what its room may see, and nothing else of this module.
func TestImports(t *testing.T) {
	t.Parallel()
	rooms, seen := rooms(), map[string]bool{}
	for _, p := range list(t, "./cmd/...", "./internal/...", "./registry/...") {
		name := nameOf(p.ImportPath)
		room, known := rooms[name]
		if !known {
			t.Errorf("%s has no room: say in this test what it may import", name)
			continue
		}
		seen[name] = true
		expectToSee(t, name, room, p.Imports)
		for _, path := range p.Imports {
			if instead := never()[path]; instead != "" && name != "registry/registrytest" { // the conformance suite tests
				t.Errorf("%s imports %s: %s", name, path, instead)
			}
		}
	}
	for name := range rooms {
		if !seen[name] {
			t.Errorf("there is no package %s", name)
		}
	}
	for _, p := range list(t, "./test/harness/checker") {
		expectToSee(t, nameOf(p.ImportPath), checker(), slices.Concat(p.Imports, p.TestImports, p.XTestImports))
	}
	for _, p := range list(t, "./test/chaos") {
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			inside := strings.HasPrefix(path, ours+"internal/") || strings.HasPrefix(path, ours+"cmd/")
			if inside && path != ours+"internal/history" { // which it holds to its own rules, too
				t.Errorf("chaos imports %s: it judges by rules of its own", nameOf(path))
			}
		}
	}
}

func nameOf(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, ours), "internal/")
}

func expectToSee(t *testing.T, name string, room room, imports []string) {
	t.Helper()
	unused := map[string]bool{}
	for allowed := range strings.FieldsSeq(room.imports) {
		unused[allowed] = true
	}
	for _, path := range imports {
		delete(unused, nameOf(path))
		if why := room.refuses(path); why != "" {
			t.Errorf("%s imports %s: %s. It is %q", name, strings.TrimPrefix(path, ours), why, room.why)
		}
	}
	for allowed := range unused {
		t.Errorf("%s may import %s and does not: take it from its room in this test", name, allowed)
	}
}

// never are imports that the product has no use for, with what to take instead.
func never() map[string]string {
	return map[string]string{
		"testing":                      "only tests test",
		"k8s.io/client-go/kubernetes":  "it brings the clients of all groups; use the typed ones",
		"github.com/google/go-cmp/cmp": "it panics by design; only for tests",
	}
}

func (r room) refuses(path string) string {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case strings.HasPrefix(path, ours):
		if !slices.Contains(strings.Fields(r.imports), nameOf(path)) {
			return "its room does not list it"
		}
	case strings.Contains(first, "."):
		return r.refusesModule(path)
	case (r.pure || r.calm) && slices.Contains([]string{"context", "log", "log/slog", "net/http", "os", "os/exec"}, path):
		return "it waits for nothing, makes no calls and sees only what it is given"
	case r.pure && slices.Contains([]string{"net", "sync", "sync/atomic"}, path):
		return "it is pure and keeps nothing"
	}
	return ""
}

func (r room) refusesModule(path string) string {
	for allowed := range strings.FieldsSeq(r.others) {
		if allowed == "*" || path == allowed || strings.HasPrefix(path, allowed+"/") {
			return ""
		}
	}
	return "its room does not list that module"
}

var arrow = regexp.MustCompile(`(?m)^(\S[^→\n]*?) +→ (.*)$`)

// TestPictureOfThePackages: each arrow in docs/architecture.md is an import, and none runs back.
func TestPictureOfThePackages(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/architecture.md")
	expect.NoError(t, err)
	_, picture, _ := strings.Cut(string(page), "```text\n")
	picture, _, _ = strings.Cut(picture, "```")
	rooms, arrows := rooms(), 0
	for _, line := range arrow.FindAllString(picture, -1) {
		ends := strings.Split(line, "→")
		for i := range ends[1:] {
			for _, from := range roomsIn(ends[i]) {
				for _, to := range roomsIn(ends[i+1]) {
					arrows++
					if !slices.Contains(strings.Fields(rooms[from].imports), to) {
						t.Errorf("docs/architecture.md has %s → %s, and %s does not import it", from, to, from)
					}
				}
			}
		}
	}
	if arrows < 30 {
		t.Errorf("docs/architecture.md has %d arrows: the expression misses some", arrows)
	}
}

// roomsIn are those that an end of an arrow names: "registry/consul, nacos, eureka, …" are drivers.
func roomsIn(end string) (names []string) {
	before := ""
	for _, name := range regexp.MustCompile(`[a-z./-]+`).FindAllString(end, -1) {
		name = strings.TrimSuffix(name, "/main.go")
		if before != "" && slices.Contains([]string{"nacos", "eureka"}, name) {
			name = "registry/" + name
		}
		if strings.HasPrefix(name, "registry/") {
			before = name
		}
		names = append(names, name)
	}
	return names
}

// TestContributingKnowsTheEngine: whoever changes a room that takes part in a visit or a run is told to play chaos.
func TestContributingKnowsTheEngine(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	expect.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| the engine: (.*?) \|`).FindStringSubmatch(string(page))
	if row == nil {
		t.Fatal("CONTRIBUTING.md has no row of the engine")
	}
	words := []string{"history", "place", "reason", "shorten", "suggest", "metrics", "orders", "registry"} // no rules in them, or a row of their own
	rooms, reached := rooms(), []string{"cmd/app", "idle", "controller", "resync"}
	for i := 2; i < len(reached); i++ {
		for next := range strings.FieldsSeq(rooms[reached[i]].imports) {
			if !slices.Contains(reached, next) && !slices.Contains(words, next) {
				reached = append(reached, next)
			}
		}
	}
	var listed []string
	for _, match := range regexp.MustCompile("`([a-z/]+)`").FindAllStringSubmatch(row[1], -1) {
		if match[1] != "internal" {
			listed = append(listed, match[1])
		}
	}
	slices.Sort(reached)
	slices.Sort(listed)
	expect.Equal(t, reached, listed, "the rooms of the engine in CONTRIBUTING.md")
}
