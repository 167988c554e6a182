package zookeeper_test

import (
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/registry/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

func TestNew(t *testing.T) {
	t.Parallel()
	d := drivertest.Driver{New: zookeeper.New, Good: "zk-1:2181", Auth: []driverkit.AuthKind{driverkit.Password}}
	password := drivertest.File(t, drivertest.Secret)
	cases := map[string]drivertest.Case{
		"only a chroot":      d.At("there is no address", "/platform", "is missing"),
		"a URL":              d.At("ZooKeeper has none", "http://zk-1:2181", "is a URL"),
		"two chroots":        d.At("all servers have the same", "zk-1:2181/a,zk-2:2181/a", "a chroot before its end"),
		"a chroot with dots": d.At("it is no path", "zk-1:2181/a/../b", "has a chroot that is"),
		"a chroot's end":     d.At("ZooKeeper refuses it", "zk-1:2181/a/", "has a chroot that is"),
		"no port at all":     d.At("a colon promises one", "zk-1:", "is not made of addresses"),
		"port too large":     d.At("no call could succeed", "zk-1:80800", "is not made of addresses"),
		"a password":         d.At("configuration is no place for a secret", "me:hunter2@zk-1:2181", "is not made of addresses"),

		"a base with no root": d.Options("it is below the chroot, always", `{"base":"services"}`, "options.base", "begins with /"),
		"a base's end":        d.Options("ZooKeeper refuses it", `{"base":"/services/"}`, "options.base", "not a path in ZooKeeper"),
		"an odd base":         d.Options("ZooKeeper refuses it", `{"base":"/ser\u0007vices"}`, "options.base", "U+0007"),
		"no such payload":     d.Options("readers would fail", `{"payload":"json"}`, "options.payload", "none, map, spring"),
		"no such state":       d.Options("clients would be sent to it", `{"outOfRotation":"disable"}`, "options.outOfRotation", "delete, enabled, status"),
		"status unread":       d.Options("no client reads it there", `{"outOfRotation":"status"}`, "options.outOfRotation", "set payload to spring"),
		"its earlier name":    d.Options("a person has to learn the new one", `{"failOver":"enabled"}`, "options", "outOfRotation"),
		"no such ACL":         d.Options("who may write is no guess", `{"acl":"world"}`, "options.acl", "creator, open"),
		"a user with a colon": drivertest.Wrong(
			"the rest would be password", registry.Config{Endpoint: d.Good, Auth: registry.Auth{Username: "a:b", PasswordFile: password}},
			"auth.username", "colon"),
	}
	for name, endpoint := range map[string]string{
		"several": "zk-1.invalid:2181,zk-2.invalid:2181", "chroot": "zk-1:2181,zk-2:2181/a/b", "no port": "zk.invalid",
		"IPv6": "[fd00::1]:2181", "IPv6 without port": "[fd00::1]", "root": "zk.invalid/",
	} {
		cases[name] = drivertest.Case{Reason: "the registry may come up later", Config: registry.Config{Endpoint: endpoint}}
	}
	d.Run(t, cases)
}
