package zookeeper_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

func digest(t *testing.T, name, word string) registry.Auth {
	t.Helper()
	return registry.Auth{Username: name, PasswordFile: drivertest.File(t, word+"\n")}
}

// expectTerminal wants the error to be terminal, of the field, and without the passwords.
func expectTerminal(t *testing.T, err error, field string) {
	t.Helper()
	drivertest.Refused(t, "a person has to act", err, field, "")
	if err != nil && strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error repeats a password: %v", err)
	}
}

// Only Rollcall may change what it creates, and the world may read it.
func TestOnlyTheUserMayWrite(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/owned"
	d := open(t, registry.Config{Endpoint: s.Endpoint, Auth: digest(t, user, password), Options: options("base", base)})
	expect.NoError(t, d.Register(t.Context(), pod(1)))
	anybody := connect(t, s.Endpoint)
	want := append(zk.DigestACL(zk.PermAll, user, password), zk.WorldACL(zk.PermRead)...)
	for _, node := range []string{base, base + "/web", path(base, pod(1))} {
		got, _, err := anybody.GetACL(node)
		expect.NoError(t, err)
		for i := range got { // the server shows the password's hash to its owner alone
			got[i].ID, _, _ = strings.Cut(got[i].ID, ":")
		}
		for i := range want {
			want[i].ID, _, _ = strings.Cut(want[i].ID, ":")
		}
		expect.Equal(t, want, got, "the ACL of %s", node)
	}
	if _, _, err := anybody.Get(path(base, pod(1))); err != nil {
		t.Errorf("reading the entry as anybody: got error %v", err)
	}
	if _, err := anybody.Set(path(base, pod(1)), nil, -1); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("writing the entry as anybody: got error %v, want %v", err, zk.ErrNoAuth)
	}
	if err := anybody.Delete(path(base, pod(1)), -1); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("deleting the entry as anybody: got error %v, want %v", err, zk.ErrNoAuth)
	}
}

// ZooKeeper takes any password, and shows that it is wrong only where it denies something.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	cfg := registry.Config{Cluster: "prod-1", Endpoint: s.Endpoint, Auth: digest(t, user, password), Options: options("base", "/wrong")}
	right := open(t, cfg)
	expect.NoError(t, right.Register(t.Context(), pod(1)))
	type row struct {
		auth  registry.Auth
		field string
	}
	expect.Each(t, map[string]row{
		"a wrong password": {digest(t, user, "s3cret-other"), "auth.passwordFile"},
		"another user":     {digest(t, "somebody", password), "auth.passwordFile"},
		"nothing":          {registry.Auth{}, "auth.username"},
	}, func(t *testing.T, tc row) {
		c := cfg
		c.Auth = tc.auth
		wrong := open(t, c)
		expectTerminal(t, wrong.Register(t.Context(), pod(1)), tc.field)
		expectTerminal(t, wrong.Register(t.Context(), pod(2)), tc.field)
		expectTerminal(t, wrong.Deregister(t.Context(), pod(1)), tc.field)
		expectTerminal(t, wrong.FailOver(t.Context(), pod(1)), tc.field)
		errs := wrong.Batch(t.Context(), []registry.Change{
			{Instance: pod(2), State: registry.Absent},
			{Instance: pod(1), State: registry.InService},
			{Instance: pod(3), State: registry.InService},
		})
		expect.NoError(t, errs[0])
		expectTerminal(t, errs[1], tc.field)
		expect.Code(t, registry.CodeNotApplied, errs[2], "the change after the one that is refused: not applied")
		if entries, err := wrong.List(t.Context(), "prod-1"); err != nil || len(entries) != 1 {
			t.Errorf("List gives %+v, %v; want the entry, which the world may read", entries, err)
		}
	})
}

// A folder that only others may read.
func TestForbiddenFolder(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	owner := connect(t, s.Endpoint, "owner:its-own")
	create(t, owner, "/forbidden", zk.DigestACL(zk.PermAll, "owner", "its-own"))
	d := open(t, registry.Config{Endpoint: s.Endpoint, Auth: digest(t, user, password), Options: options("base", "/forbidden")})
	_, err := d.List(t.Context(), "prod-1")
	expectTerminal(t, err, "auth.passwordFile")
	expectTerminal(t, d.Register(t.Context(), pod(1)), "auth.passwordFile")
}

// A service's folder in which Rollcall may not work stops no pod of another service. It may be another team's.
func TestForbiddenService(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/forbidden-services"
	owner, own := connect(t, s.Endpoint, "owner:its-own"), zk.DigestACL(zk.PermAll, "owner", "its-own")
	create(t, owner, base, append(zk.WorldACL(zk.PermRead), own...))
	create(t, owner, base+"/web", openACL())
	create(t, owner, base+"/closed", own)
	d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", base)})
	for _, theirs := range []string{"closed", "missing"} {
		changes := []registry.Change{
			{Instance: pod(1), State: registry.InService}, {Instance: pod(2), State: registry.InService}, {Instance: pod(3), State: registry.InService},
		}
		changes[1].Instance.Service = theirs
		errs := d.Batch(t.Context(), changes)
		expectTerminal(t, errs[1], "auth.username")
		for _, err := range []error{errs[0], errs[2]} {
			if err != nil && registry.CodeOf(err) != registry.CodeNotApplied {
				t.Errorf("a change in the same batch as one of the service %s: got error %v", theirs, err)
			}
		}
	}
	_, err := d.List(t.Context(), "prod-1")
	expectTerminal(t, err, "auth.username")
	expect.Error(t, "a person has to learn where the rights are missing", err, base+"/closed")
}

// The parent of the services' folder may be closed: the folder is there already.
func TestFolderBelowOneThatIsClosed(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	owner := connect(t, s.Endpoint, "owner:its-own")
	create(t, owner, "/closed", append(zk.DigestACL(zk.PermAll, "owner", "its-own"), zk.WorldACL(zk.PermRead)...))
	create(t, owner, "/closed/services", openACL())
	d := open(t, registry.Config{Endpoint: s.Endpoint, Auth: digest(t, user, password), Options: options("base", "/closed/services")})
	expect.NoError(t, d.Register(t.Context(), pod(1)))
}

// Servers can be made to serve only those who say who they are.
func TestServerThatWantsCredentials(t *testing.T) {
	t.Parallel()
	s := use(t, zookeeper.Options{EnforceAuth: true})
	anonymous := open(t, registry.Config{Endpoint: s.Endpoint})
	expectTerminal(t, anonymous.Register(t.Context(), pod(1)), "auth.username")
	known := open(t, registry.Config{Endpoint: s.Endpoint, Auth: digest(t, user, password)})
	expect.NoError(t, known.Register(t.Context(), pod(1)))
}

func TestCreatorNeedsCredentials(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	d := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", "/nobodys", "acl", "creator")})
	expectTerminal(t, d.Register(t.Context(), pod(1)), "options.acl")
}

// A chroot that is not there is a slip of the pen.
func TestChrootMustExist(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	d := open(t, registry.Config{Endpoint: s.Endpoint + "/no/such/place"})
	expectTerminal(t, d.Register(t.Context(), pod(1)), "endpoint")
	_, err := d.List(t.Context(), "prod-1")
	expectTerminal(t, err, "endpoint")
	expectTerminal(t, d.Batch(t.Context(), []registry.Change{{Instance: pod(1), State: registry.InService}})[0], "endpoint")
	create(t, connect(t, s.Endpoint), "/no/such/place", openACL())
	expect.NoError(t, d.Register(t.Context(), pod(1)))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	one, both := secure.Use(t), mutual.Use(t)
	elsewhere, err := network.Start(t.Context(), "127.0.0.2:0", one.SecureEndpoint)
	expect.NoError(t, err)
	t.Cleanup(elsewhere.Stop)
	named := strings.Replace(one.SecureEndpoint, "127.0.0.1", "localhost", 1)
	type row struct {
		endpoint string
		files    registry.TLS
		field    string // "" where it works
	}
	expect.Each(t, map[string]row{
		"an authority":      {one.SecureEndpoint, registry.TLS{CAFile: one.CAFile}, ""},
		"by name":           {named, registry.TLS{CAFile: one.CAFile}, ""},
		"a certificate":     {both.SecureEndpoint, registry.TLS{CAFile: both.CAFile, CertFile: both.CertFile, KeyFile: both.KeyFile}, ""},
		"another authority": {one.SecureEndpoint, registry.TLS{CAFile: both.CAFile}, "tls.caFile"},
		"another name":      {elsewhere.Address, registry.TLS{CAFile: one.CAFile}, "endpoint"},
		"no certificate":    {both.SecureEndpoint, registry.TLS{CAFile: both.CAFile}, "tls.certFile"},
		"somebody else's certificate": {
			both.SecureEndpoint, registry.TLS{CAFile: both.CAFile, CertFile: one.CertFile, KeyFile: one.KeyFile}, "tls.certFile",
		},
	}, func(t *testing.T, tc row) {
		d := open(t, registry.Config{Cluster: "prod-1", Endpoint: tc.endpoint, TLS: tc.files, Options: options("base", "/tls")})
		err := d.Register(drivertest.Within(t, bound), pod(1))
		if tc.field != "" {
			expectTerminal(t, err, tc.field)
			return
		}
		expect.NoError(t, err)
		entries, err := d.List(t.Context(), "prod-1")
		if err != nil || len(entries) != 1 {
			t.Errorf("List gives %+v, %v; want the entry", entries, err)
		}
	})
}

// To ZooKeeper a certificate is a user like any other.
func TestCertificateOwnsWhatItCreates(t *testing.T) {
	t.Parallel()
	s := mutual.Use(t)
	d := open(t, registry.Config{
		Endpoint: s.SecureEndpoint, TLS: registry.TLS{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile},
		Options: options("base", "/certified", "acl", "creator"),
	})
	expect.NoError(t, d.Register(t.Context(), pod(1)))
	acl, _, err := connect(t, s.Endpoint).GetACL(path("/certified", pod(1)))
	expect.NoError(t, err)
	want := append([]zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=rollcall"}}, zk.WorldACL(zk.PermRead)...)
	expect.Equal(t, want, acl, "the ACL of the entry")
	// The same server, without a certificate.
	anonymous := open(t, registry.Config{Endpoint: s.Endpoint, Options: options("base", "/certified")})
	expectTerminal(t, anonymous.Deregister(t.Context(), pod(1)), "auth.username")
}
