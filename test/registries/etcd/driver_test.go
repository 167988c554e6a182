package etcd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

func TestWrongCertificatesAreNamed(t *testing.T) {
	t.Parallel()
	s := startWithUsers(t)
	foreign, err := pki.NewAuthority(t.TempDir(), "somebody-else")
	expect.NoError(t, err)
	type row struct {
		reason string
		spoil  func(*registry.Config)
		field  string
	}
	expect.Each(t, map[string]row{
		"no certificate": {
			reason: "etcd wants a client certificate, and none is configured",
			spoil:  func(c *registry.Config) { c.TLS.CertFile, c.TLS.KeyFile = "", "" },
			field:  "tls.certFile",
		},
		"another authority": {
			reason: "the server's certificate is not of an authority that is trusted",
			spoil:  func(c *registry.Config) { c.TLS.CAFile = foreign.CertFile },
			field:  "tls.caFile",
		},
	}, func(t *testing.T, tc row) {
		cfg := config(t, s)
		tc.spoil(&cfg)
		d := open(t, cfg)
		// A server that hangs up in the middle of a handshake is not always heard to say why.
		expect.Soon(t, tc.reason, func() error {
			err := d.Register(t.Context(), pod("10.0.0.1", 80))
			if field, _ := registry.FieldOf(err); registry.CodeOf(err) != registry.CodeTerminal || field != tc.field {
				return fmt.Errorf("terminal: %t, field %q, want %q: %w", registry.CodeOf(err) == registry.CodeTerminal, field, tc.field, err)
			}
			return nil
		})
	})
}

// TestLoginIsRenewed: a token ends long before the driver does, and authentication can be turned on after it has begun.
func TestLoginIsRenewed(t *testing.T) {
	t.Parallel()
	s := start(t, etcd.Options{ClientCertificates: true})
	root := connect(t, s, "", "")
	addUsers(t, root)
	cfg := config(t, s)
	cfg.Auth = registry.Auth{Username: writer, PasswordFile: drivertest.File(t, password)}
	d := open(t, withOptions(cfg, `{"lease": "60s"}`))
	in := pod("10.0.0.1", 80)
	call(t, d.Register, in)
	expectList(t, d, in)

	expect.NoError(t, s.EnableAuth(t.Context(), rootPassword))
	call(t, d.Heartbeat, in)
	// A change of the password makes the tokens invalid that were given for it.
	root = connect(t, s, "root", rootPassword)
	for _, next := range []func(context.Context, registry.Instance) error{d.Register, d.Heartbeat, d.Deregister} {
		_, err := root.UserChangePassword(t.Context(), writer, password)
		expect.NoError(t, err)
		call(t, next, in)
	}
	expectList(t, d, registry.Instance{Cluster: in.Cluster})
}

// TestOneServerOfSeveral: a driver works with the members that answer.
func TestOneServerOfSeveral(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	expect.Each(t, map[string]string{
		"first dead":  "http://" + registrytest.UnusedAddress(t) + "," + s.URL(),
		"second dead": s.URL() + ", http://" + registrytest.UnusedAddress(t),
		"silent":      "http://" + registrytest.SilentAddress(t) + "," + s.URL(),
	}, func(t *testing.T, endpoint string) {
		cfg := config(t, s)
		cfg.Endpoint = endpoint
		d := open(t, cfg)
		in := pod("10.0.0.1", 80)
		call(t, d.Register, in)
		call(t, d.Register, in)
		expectList(t, d, in)
	})
}

// TestForeignEntriesAreSparedUntilRegister: what stands in the way without our mark is never removed, and registering overwrites it.
func TestForeignEntriesAreSparedUntilRegister(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	d := open(t, withOptions(config(t, s), `{"lease": "5m"}`))
	c := connect(t, s, "", "")
	for name, tc := range map[string]struct {
		content string
		given   bool // to clients
	}{
		"another writer's": {`{"Op":0,"Addr":"10.0.0.1:80","Metadata":"v1"}`, true},
		"without metadata": {`{"Op":0,"Addr":"10.0.0.1:80","Metadata":null}`, true},
		"an object":        {`{"Op":0,"Addr":"10.0.0.1:80","Metadata":{"a":{"b":1}}}`, true},
		"not JSON":         {"\xff", false},
		"empty":            {"", false},
	} {
		content := tc.content
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := pod("10.0.0.1", 80)
			key := "services/" + in.Service + "/10.0.0.1:80"
			if _, err := c.Put(t.Context(), key, content); err != nil {
				t.Fatal(err)
			}
			for _, removes := range []func(context.Context, registry.Instance) error{d.FailOver, d.Deregister} {
				if err := removes(t.Context(), in); (registry.CodeOf(err) == registry.CodeForeignEntry) != tc.given || err != nil && !tc.given {
					t.Errorf("taking it out: got %v, want an error of a foreign entry: %t", err, tc.given)
				}
			}
			expect.Equal(t, content, value(t, c, key), "after calls that take out, the entry")
			expect.Code(t, registry.CodeNotRegistered, d.Heartbeat(t.Context(), in), "a beat for it")
			expectList(t, d, registry.Instance{Cluster: in.Cluster})
			call(t, d.Register, in)
			expectList(t, d, in)
		})
	}
}

func TestLargeInstanceIsRefused(t *testing.T) {
	t.Parallel()
	d := open(t, config(t, shared.Use(t)))
	sound, large := pod("10.0.0.1", 80), pod("10.0.0.2", 80)
	large.Metadata = map[string]string{"large": strings.Repeat("x", 2<<20-2000)} // etcd takes 1.5 MiB
	expect.Code(t, registry.CodeTerminal, d.Register(t.Context(), large), "one that is too large")
	for _, err := range d.Batch(t.Context(), []registry.Change{
		{Instance: sound, State: registry.InService}, {Instance: large, State: registry.InService},
	}) {
		expect.Code(t, registry.CodeNotApplied, err, "in a batch")
	}
	expectList(t, d, registry.Instance{Cluster: sound.Cluster})
}

// TestFullDatabase: etcd has the alarm NOSPACE, takes nothing more, and still removes.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	s := start(t, etcd.Options{QuotaBytes: 2 << 20})
	d, leased := open(t, config(t, s)), open(t, withOptions(config(t, s), `{"lease": "60s"}`))
	there := []registry.Instance{pod("10.0.0.1", 80), pod("10.0.0.2", 80)}
	call(t, d.Register, there[0])
	call(t, leased.Register, there[1])
	c := connect(t, s, "", "")
	// Each put is another revision of the key, which stays until it is compacted. What counts is what was written to the disk.
	expect.Soon(t, "the database is full", func() error {
		if _, err := c.Put(t.Context(), "filling", strings.Repeat("x", 256<<10)); !errors.Is(err, rpctypes.ErrNoSpace) {
			return fmt.Errorf("a put: got error %w, want that there is no space", err)
		}
		return nil
	})
	for i, d := range []interface {
		registry.Registry
		registry.Batcher
	}{d, leased} {
		late := pod("10.0.0.3", 80)
		for j, err := range d.Batch(t.Context(), []registry.Change{
			{Instance: late, State: registry.InService}, {Instance: there[i], State: registry.Absent},
		}) {
			expect.Code(t, registry.CodeNotApplied, err, "change %d of a batch", j)
		}
		errs := d.Batch(t.Context(), []registry.Change{
			{Instance: late, State: registry.InService}, {Instance: pod("10.0.0.4", 80), State: registry.InService},
		})
		for _, err := range append(errs, d.Register(t.Context(), late)) { // registrations wait together
			if _, answered := registry.RetryAfterOf(err); !answered || registry.CodeOf(err) != "" {
				t.Errorf("registering: got %v, want an error that passes, and an answer, and no change that is made again immediately", err)
			}
		}
		call(t, d.Deregister, there[i])
	}
	for _, in := range there {
		expectList(t, d, registry.Instance{Cluster: in.Cluster})
	}
}

// TestMoreThanTheServerTakes: the changes are made one by one then, as for any batch that is refused.
func TestMoreThanTheServerTakes(t *testing.T) {
	t.Parallel()
	const servers = 128
	d := open(t, config(t, shared.Use(t)))
	if got := d.BatchLimit(); got != servers {
		t.Errorf("the limit is %d", got)
	}
	in := pod("10.0.0.1", 80)
	var changes []registry.Change
	for i := range servers + 1 {
		in.Port = 1000 + i
		changes = append(changes, registry.Change{Instance: in, State: registry.InService})
	}
	for i, err := range d.Batch(t.Context(), changes) {
		if registry.CodeOf(err) != registry.CodeNotApplied {
			t.Fatalf("change %d of more than the server takes: got %v, want not applied", i, err)
		}
	}
	for i, err := range d.Batch(t.Context(), changes[:servers]) {
		if err != nil {
			t.Fatalf("change %d of as many as the server takes: %v", i, err)
		}
	}
}

// TestLeaseOfAnEarlierConfiguration: an entry that has no lease, or a shorter one than is configured now, must be
// registered again.
func TestLeaseOfAnEarlierConfiguration(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	in := pod("10.0.0.1", 80)
	with := func(lease string) interface {
		registry.Registry
		registry.Heartbeater
	} {
		return open(t, withOptions(config(t, s), `{"lease": "`+lease+`"}`))
	}
	none, short, long := with("0s"), with("60s"), with("120s")
	for _, step := range []struct {
		reason      string
		register    func(context.Context, registry.Instance) error
		beat        func(context.Context, registry.Instance) error
		mustBeAgain bool
	}{
		{"it has no lease yet", none.Register, short.Heartbeat, true},
		{"its lease is this configuration's", short.Register, short.Heartbeat, false},
		{"its lease is shorter", short.Register, long.Heartbeat, true},
		{"its lease is longer", long.Register, short.Heartbeat, false},
		{"its lease was taken away", none.Register, long.Heartbeat, true},
	} {
		call(t, step.register, in)
		if err := step.beat(t.Context(), in); (registry.CodeOf(err) == registry.CodeNotRegistered) != step.mustBeAgain || (err != nil) != step.mustBeAgain {
			t.Errorf("%s: the beat gives %v, want not registered: %t", step.reason, err, step.mustBeAgain)
		}
	}
	call(t, short.Register, in)
	for _, step := range []struct {
		reason   string
		register func(context.Context, registry.Instance) error
		lists    registry.Lister
		want     registry.State
	}{
		{"its lease is renewed", nil, short.(registry.Lister), registry.InService},
		{"nothing renews its lease", nil, none.(registry.Lister), registry.OutOfService},
		{"it has no lease", none.Register, none.(registry.Lister), registry.InService},
	} {
		if step.register != nil {
			call(t, step.register, in)
		}
		entries, err := step.lists.List(t.Context(), in.Cluster)
		i := slices.IndexFunc(entries, func(e registry.Entry) bool { return e.Endpoint() == in.Endpoint() })
		if err != nil || i < 0 || entries[i].State != step.want {
			t.Errorf("%s: the list has %+v, error %v, want the entry %s", step.reason, entries, err, step.want)
		}
	}
	if never, often := registry.TraitsOf(none).HeartbeatInterval, registry.TraitsOf(short).HeartbeatInterval; never != 0 || often.Seconds() != 20 {
		t.Errorf("the intervals are %s and %s", never, often)
	}
}

// TestEntriesOfABatchHaveLeasesOfTheirOwn: one that is no longer renewed must not be kept by the others' renewals.
func TestEntriesOfABatchHaveLeasesOfTheirOwn(t *testing.T) {
	t.Parallel()
	const entries = 40
	s := shared.Use(t)
	d := open(t, withOptions(config(t, s), `{"lease": "60s"}`))
	in := pod("10.0.0.1", 80)
	var changes []registry.Change
	for i := range entries {
		in.Port = 1000 + i
		changes = append(changes, registry.Change{Instance: in, State: registry.InService})
	}
	for i, err := range d.Batch(t.Context(), changes) {
		if err != nil {
			t.Errorf("change %d: %v", i, err)
		}
	}
	answer, err := connect(t, s, "", "").Get(t.Context(), "services/"+in.Service+"/", clientv3.WithPrefix())
	expect.NoError(t, err)
	leases := map[int64]bool{}
	for _, kv := range answer.Kvs {
		leases[kv.Lease] = true
	}
	if len(leases) != entries || leases[0] {
		t.Errorf("%d entries have %d leases, want one each; none for some: %t", len(answer.Kvs), len(leases), leases[0])
	}
}

// TestCallAfterClose is an error of a class that is tried again: by then there is another driver.
func TestCallAfterClose(t *testing.T) {
	t.Parallel()
	d := open(t, config(t, shared.Use(t)))
	if err := d.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	drivertest.Passes(t, "it is closed", d.Register(t.Context(), pod("10.0.0.1", 80)), "")
}

// TestGetReadsWhatWasWrittenSince: what it has read of a service, on each page, is not sent again, and the next write is not missed.
func TestGetReadsWhatWasWrittenSince(t *testing.T) {
	t.Parallel()
	s, in := start(t, etcd.Options{}), pod("10.0.0.1", 80) // of its own, so that nothing else is written
	c, h := connect(t, s, "", ""), harness(t, s, config(t, s), s)
	var page []clientv3.Op // before the large entry
	for n := range 1000 {
		page = append(page, clientv3.OpPut(fmt.Sprintf("services/%s/%d", in.Service, n), ""))
	}
	for some := range slices.Chunk(page, 100) { // one request has at most 128
		_, err := c.Txn(t.Context()).Then(some...).Commit()
		expect.NoError(t, err)
	}
	const size = 256 << 10
	_, err := c.Put(t.Context(), "services/"+in.Service+"/large", strings.Repeat("x", size))
	expect.NoError(t, err)
	metered, spent := h.Metered(t, in.Cluster)
	d := metered.(registry.Getter)
	for read, wantAtLeast := range []int64{size, 0} {
		before := spent().Bytes
		state, err := d.Get(t.Context(), in)
		expect.NoError(t, err)
		expect.Equal(t, registry.Absent, state, "before an application comes")
		if bytes := spent().Bytes - before; bytes < wantAtLeast || bytes >= wantAtLeast+size {
			t.Errorf("read %d took %d bytes of a service with an entry of %d, want the entry in the first only", read, bytes, size)
		}
	}
	_, err = c.Put(t.Context(), "services/"+in.Service+"/app", `{"Op":0,"Addr":"`+in.Endpoint()+`"}`)
	expect.NoError(t, err)
	state, err := d.Get(t.Context(), in)
	expect.NoError(t, err)
	expect.Equal(t, registry.Foreign, state, "an application has come in the revision after the last that was read")
}

// TestAnotherEtcdAtTheAddress counts its revisions from the beginning: what the driver has learned of others is of no use.
func TestAnotherEtcdAtTheAddress(t *testing.T) {
	t.Parallel()
	before, after, in := start(t, etcd.Options{}), start(t, etcd.Options{}), pod("10.0.0.1", 80)
	var server atomic.Pointer[etcd.Server]
	server.Store(before)
	cfg := config(t, before)
	cfg.Endpoint = "http://" + drivertest.Leading(t, func() string { return strings.TrimPrefix(server.Load().URL(), "http://") })
	d := open(t, cfg)
	for range 20 {
		call(t, d.Register, in)
		call(t, d.Deregister, in)
	}
	_, err := d.Get(t.Context(), in)
	expect.NoError(t, err)
	_, err = connect(t, after, "", "").Put(t.Context(), "services/"+in.Service+"/app", `{"Op":0,"Addr":"`+in.Endpoint()+`"}`)
	expect.NoError(t, err)
	server.Store(after)
	before.Stop()
	expect.Soon(t, "the application's entry to be found", func() error {
		state, err := d.Get(t.Context(), in)
		if err == nil && state != registry.Foreign {
			t.Fatalf("got state %s, want %s: clients are given the address by another's key", state, registry.Foreign)
		}
		return err
	})
}

func withOptions(cfg registry.Config, options string) registry.Config {
	cfg.Options = json.RawMessage(options)
	return cfg
}

// expectList wants these entries of their cluster and no others; one without an address stands for none.
func expectList(t *testing.T, d registry.Lister, want ...registry.Instance) {
	t.Helper()
	var entries []registry.Entry
	for _, in := range want {
		if in.Address != "" {
			entries = append(entries, registry.Entry{Instance: in, State: registry.InService})
		}
	}
	got, err := d.List(t.Context(), want[0].Cluster)
	got = slices.DeleteFunc(got, func(e registry.Entry) bool { return e.State == registry.Foreign }) // another test's
	if diff := cmp.Diff(entries, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("listing: %v (-want +got):\n%s", err, diff)
	}
}
