// Package drivers has the registry drivers of this repository by their names, for a main that passes them on.
package drivers

import (
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/registry/pod"
	"github.com/rollcall-dev/rollcall/registry/zookeeper"
)

// All has each under the name that its page in docs/drivers has.
func All() map[string]registry.Constructor {
	return map[string]registry.Constructor{
		"consul": consul.New, "etcd": etcd.New, "eureka": eureka.New, "http": httpregistry.New,
		"memory": memory.New, "nacos": nacos.New, "pod": pod.New, "zookeeper": zookeeper.New,
	}
}
