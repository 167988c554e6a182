package zookeeper

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// theirs is what an application's own Curator writes.
func theirs(address string, port int) string {
	return fmt.Sprintf(`{"name":"web","id":"a","address":%q,"port":%d,"payload":null,"serviceType":"DYNAMIC"}`, address, port)
}

// TestSuite runs on a ZooKeeper of memory what is asked of every driver; test/registries/zookeeper does on a real one.
func TestSuite(t *testing.T) {
	t.Parallel()
	f, endpoint := newFakeTree(t)
	cfg := registry.Config{Endpoint: endpoint}
	h := drivertest.Harness(New, cfg, "")
	drivertest.Meter(&h, New, cfg, nil)
	h.LosingAnswers = drivertest.LosingAnswers(New, cfg)
	h.Foreign = func(_ testing.TB, at registry.Instance) func() {
		node := "/services/" + at.Service + "/app-" + at.Endpoint()
		f.write(node, theirs(at.Address, at.Port))
		return func() { f.remove(node) }
	}
	h.Copy = func(t testing.TB, of registry.Instance) func() {
		raw, err := Options{Payload: payloadNone}.encode(of, registry.InService, 1)
		expect.NoError(t, err)
		node := "/services/" + of.Service + "/copy-of-" + idOf(of)
		f.write(node, string(raw))
		return func() { f.remove(node) }
	}
	h.Lacks = map[registrytest.Capability]string{
		registrytest.OutOfServiceState: "the entry is deleted: no state is heeded by all readers",
		registrytest.AnyServiceName:    "a znode's name has no slash, and Curator's readers know no escapes",
		registrytest.Tags:              "an instance of Curator has none; metadata does",
	}
	registrytest.Run(t, h)
}

// TestManyAreReadBack after a cut, from a large service: what is about the service is asked for once for all of a moment.
func TestManyAreReadBack(t *testing.T) {
	t.Parallel()
	const entries, pods, foreign = 2000, 84, 3
	f, endpoint := newFakeTree(t)
	d := drivertest.Open[*Registry](t, New, registry.Config{Endpoint: endpoint})
	in := func(n int) registry.Instance {
		in := drivertest.Pod(n)
		in.Address = fmt.Sprintf("10.0.%d.%d", n/250, n%250)
		return in
	}
	for n := range entries {
		raw, err := Options{Payload: payloadNone}.encode(in(n), registry.InService, 1)
		expect.NoError(t, err)
		f.write(d.tree.entry(in(n)), string(raw))
	}
	for n := range foreign {
		f.write(fmt.Sprintf("/services/web/app-%d", n), theirs("10.9.9.9", n))
	}
	expect.NoError(t, d.Register(t.Context(), in(0)))
	f.count()
	var group errgroup.Group
	for n := range pods {
		group.Go(func() error {
			state, err := d.Get(t.Context(), in(n))
			if err == nil && state != registry.InService {
				err = fmt.Errorf("pod %d is %s", n, state)
			}
			return err
		})
	}
	expect.NoError(t, group.Wait())
	f.mu.Lock()
	defer f.mu.Unlock()
	if names := f.asked[getChildren2]; names != 1 {
		t.Errorf("the names of all entries were read %d times, want once: no node came or went", names)
	}
	if questions, read := f.asked[exists], f.asked[getData]; questions > pods/2 || read != pods+foreign*questions {
		t.Errorf("%d questions about the service and %d entries read, want few, and %d and those of others", questions, read, pods)
	}
}

// TestOthersAreSeenAtOnce, however they come to have the pod's address.
func TestOthersAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	const folder = "/services/web/"
	f, endpoint := newFakeTree(t)
	d := drivertest.Open[*Registry](t, New, registry.Config{Endpoint: endpoint})
	in := drivertest.Pod(1)
	expect.NoError(t, d.Register(t.Context(), in))
	spring := func(status string) string {
		return strings.Replace(theirs(in.Address, in.Port), `"payload":null`,
			`"payload":{"@class":"`+springClass+`","metadata":{"instance_status":"`+status+`"}}`, 1)
	}
	for _, step := range []struct {
		reason string
		do     func()
		want   registry.State
	}{
		{"there is none", func() {}, registry.InService},
		{"one comes", func() { f.write(folder+"app", theirs(in.Address, in.Port)) }, registry.Foreign},
		{"it moves away in its node", func() { f.write(folder+"app", theirs("10.9.9.9", in.Port)) }, registry.InService},
		{"it moves back in its node", func() { f.write(folder+"app", theirs(in.Address, in.Port)) }, registry.Foreign},
		{"it is out by Spring's status", func() { f.write(folder+"app", spring("OUT_OF_SERVICE")) }, registry.InService},
		{"it is up", func() { f.write(folder+"app", spring("UP")) }, registry.Foreign},
		{"it goes", func() { f.remove(folder + "app") }, registry.InService},
		{
			"a node of its name is another's", func() {
				f.write(folder+"app", theirs("10.9.9.9", in.Port))
				f.remove(folder + "app")
				f.write(folder+"app", theirs(in.Address, in.Port))
			}, registry.Foreign,
		},
		{"the pod's own node is overwritten", func() {
			f.remove(folder + "app")
			f.write(folder+idOf(in), theirs(in.Address, in.Port))
		}, registry.Foreign},
	} {
		step.do()
		if state, err := d.Get(t.Context(), in); err != nil || state != step.want {
			t.Errorf("%s: got %q and error %v, want %q", step.reason, state, err, step.want)
		}
	}
}
