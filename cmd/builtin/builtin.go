// Package builtin holds the registry drivers of this repository, for a manager that has one more: its main passes them on
// with its own, see package app.
package builtin

import (
	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/registry/pod"
	"github.com/rollcall-dev/rollcall/registry/zookeeper"
)

// Registries adds every driver of this repository under the name that its page in docs/drivers has.
func Registries() []app.Option {
	return []app.Option{
		app.WithRegistry("consul", consul.New),
		app.WithRegistry("etcd", etcd.New),
		app.WithRegistry("eureka", eureka.New),
		app.WithRegistry("http", httpregistry.New),
		app.WithRegistry("memory", memory.New),
		app.WithRegistry("nacos", nacos.New),
		app.WithRegistry("pod", pod.New),
		app.WithRegistry("zookeeper", zookeeper.New),
	}
}
