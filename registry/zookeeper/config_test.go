package zookeeper_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/zookeeper"
)

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	const good = "zk-1:2181,zk-2:2181/platform"
	password := writeFile(t, "password", "hunter2\n")
	at := func(endpoint string) registry.Config { return registry.Config{Endpoint: endpoint} }
	with := func(options string) registry.Config {
		return registry.Config{Endpoint: good, Options: json.RawMessage(options)}
	}
	as := func(auth registry.Auth) registry.Config { return registry.Config{Endpoint: good, Auth: auth} }
	for name, tc := range map[string]struct {
		reason string
		cfg    registry.Config
		field  string
		says   string
	}{
		"no endpoint":        {"there is no default", at(""), "endpoint", "is missing"},
		"only a chroot":      {"there is nobody to call", at("/platform"), "endpoint", "is missing"},
		"a URL":              {"ZooKeeper has none", at("http://zk-1:2181"), "endpoint", "is a URL"},
		"two chroots":        {"all servers have the same", at("zk-1:2181/a,zk-2:2181/a"), "endpoint", "a chroot before its end"},
		"a chroot with dots": {"it is no path", at("zk-1:2181/a/../b"), "endpoint", "has a chroot that is"},
		"a chroot's end":     {"ZooKeeper refuses it", at("zk-1:2181/a/"), "endpoint", "has a chroot that is"},
		"no port at all":     {"a colon promises one", at("zk-1:"), "endpoint", "is not made of addresses"},
		"port too large":     {"no call could succeed", at("zk-1:80800"), "endpoint", "is not made of addresses"},
		"twice":              {"it looks like a slip", at("zk-1:2181,zk-1:2181"), "endpoint", "twice"},
		"an empty address":   {"it looks like a slip", at("zk-1:2181,,zk-2:2181"), "endpoint", "empty address"},
		"a password":         {"configuration is no place for a secret", at("me:hunter2@zk-1:2181"), "endpoint", "is not made of addresses"},

		"an unknown option":   {"a misspelt one must not be ignored", with(`{"ephemerl":true}`), "options", `"ephemerl"`},
		"a base with no root": {"it is below the chroot, always", with(`{"base":"services"}`), "options.base", "begins with /"},
		"a base's end":        {"ZooKeeper refuses it", with(`{"base":"/services/"}`), "options.base", "no path in ZooKeeper"},
		"an odd base":         {"ZooKeeper refuses it", with(`{"base":"/ser\u0007vices"}`), "options.base", "U+0007"},
		"no such payload":     {"readers would fail", with(`{"payload":"json"}`), "options.payload", "none, map, spring"},
		"no such fail over":   {"clients would be sent to it", with(`{"failOver":"disable"}`), "options.failOver", "delete, enabled, status"},
		"status for nobody":   {"nobody reads it there", with(`{"failOver":"status"}`), "options.failOver", "set payload to spring"},
		"no such ACL":         {"who may write is no guess", with(`{"acl":"world"}`), "options.acl", "creator, open"},

		"a token":              {"ZooKeeper has none", as(registry.Auth{TokenFile: password}), "auth.tokenFile", "does not take it"},
		"a user alone":         {"digest is both", as(registry.Auth{Username: "me"}), "auth.passwordFile", "is missing"},
		"a password alone":     {"digest is both", as(registry.Auth{PasswordFile: password}), "auth.username", "is missing"},
		"a user with a colon":  {"the rest would be password", as(registry.Auth{Username: "a:b", PasswordFile: password}), "auth.username", "colon"},
		"no password file":     {"a Secret was not mounted", as(registry.Auth{Username: "me", PasswordFile: "/does/not/exist"}), "auth.passwordFile", "that the manager can read"},
		"no certificate there": {"a Secret was not mounted", registry.Config{Endpoint: good, TLS: registry.TLS{CAFile: "/does/not/exist"}}, "tls.caFile", "that the manager can read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := zookeeper.New(t.Context(), tc.cfg)
			field, _ := registry.FieldOf(err)
			if err == nil || field != tc.field || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("New: got error %v, want one of field %s with %q\nreason: %s", err, tc.field, tc.says, tc.reason)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("New: the error repeats a secret: %v", err)
			}
		})
	}
}

func TestNewNeedsNoServer(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{
		"one": "zk.invalid:2181", "several": "zk-1.invalid:2181,zk-2.invalid:2181", "chroot": "zk.invalid:2181/a/b",
		"no port": "zk.invalid", "IPv6": "[fd00::1]:2181", "IPv6 without port": "[fd00::1]", "root": "zk.invalid/",
	} {
		d, err := zookeeper.New(t.Context(), registry.Config{Endpoint: endpoint})
		if err != nil {
			t.Errorf("%s: got error %v, want a driver: the registry may come up later", name, err)
			continue
		}
		if err := d.(io.Closer).Close(); err != nil {
			t.Errorf("%s: closing: %v", name, err)
		}
	}
}
