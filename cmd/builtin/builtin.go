// Package builtin holds the registry drivers of this repository, for a manager that has one more: its main passes them on
// with its own, see package app.
package builtin

import (
	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/internal/drivers/consul"
	"github.com/rollcall-dev/rollcall/internal/drivers/etcd"
	"github.com/rollcall-dev/rollcall/internal/drivers/eureka"
	httpregistry "github.com/rollcall-dev/rollcall/internal/drivers/http"
	"github.com/rollcall-dev/rollcall/internal/drivers/memory"
	"github.com/rollcall-dev/rollcall/internal/drivers/nacos"
	"github.com/rollcall-dev/rollcall/internal/drivers/zookeeper"
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
		app.WithRegistry("zookeeper", zookeeper.New),
	}
}
