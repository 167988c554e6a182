package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"
	consulapi "github.com/hashicorp/consul/api"
	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/registry"
	consuldriver "github.com/rollcall-dev/rollcall/registry/consul"
	etcddriver "github.com/rollcall-dev/rollcall/registry/etcd"
	eurekadriver "github.com/rollcall-dev/rollcall/registry/eureka"
	nacosdriver "github.com/rollcall-dev/rollcall/registry/nacos"
	zookeeperdriver "github.com/rollcall-dev/rollcall/registry/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

func matches() []match {
	return []match{
		{"consul", func(ctx context.Context) (server, error) {
			s, err := consul.Start(ctx, consul.Options{})
			return running(s, err, func() string { return s.URL })
		}, consuldriver.New, "consul/api", connectConsul},
		{"etcd", func(ctx context.Context) (server, error) {
			s, err := etcd.Start(ctx, etcd.Options{})
			return running(s, err, func() string { return "http://" + s.Endpoint })
		}, etcddriver.New, "clientv3", connectEtcd},
		{"zookeeper", func(ctx context.Context) (server, error) {
			s, err := zookeeper.Start(ctx, zookeeper.Options{})
			return running(s, err, func() string { return s.Endpoint })
		}, zookeeperdriver.New, "go-zookeeper", connectZooKeeper},
		{"nacos", func(ctx context.Context) (server, error) {
			s, err := nacos.Start(ctx, nacos.Options{Version: nacos.V2})
			return running(s, err, func() string { return s.Endpoint })
		}, nacosdriver.New, "nacos-sdk-go", connectNacos},
		{"eureka", func(ctx context.Context) (server, error) {
			s, err := eureka.Start(ctx, eureka.Options{})
			return running(s, err, func() string { return s.Endpoint })
		}, eurekadriver.New, "net/http", connectEureka},
	}
}

// connectConsul writes into the catalog, where Rollcall writes. Its default transport keeps two connections.
func connectConsul(_ context.Context, endpoint string) (client, error) {
	c := consulapi.DefaultConfig()
	c.Address, c.Transport = endpoint, &http.Transport{MaxIdleConnsPerHost: config.DefaultMaxInFlight}
	api, err := consulapi.NewClient(c)
	return client{func(ctx context.Context, in registry.Instance) error {
		_, err := api.Catalog().Register(&consulapi.CatalogRegistration{
			Node: "bench-" + strconv.Itoa(in.Port), Address: "127.0.0.1", SkipNodeUpdate: true,
			Service: &consulapi.AgentService{ID: in.Pod, Service: in.Service, Address: in.Address, Port: in.Port, Meta: metadata(in)},
		}, (&consulapi.WriteOptions{}).WithContext(ctx))
		return err
	}, c.Transport.CloseIdleConnections}, err
}

func connectEtcd(_ context.Context, endpoint string) (client, error) {
	const patience = 10 * time.Second
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: patience})
	if err != nil {
		return client{}, err
	}
	return client{func(ctx context.Context, in registry.Instance) error {
		value, err := json.Marshal(map[string]any{"Addr": net.JoinHostPort(in.Address, strconv.Itoa(in.Port)), "Metadata": metadata(in)})
		if err != nil {
			return err
		}
		_, err = c.Put(ctx, "own/"+in.Service+"/"+in.Endpoint(), string(value))
		return err
	}, func() { _ = c.Close() }}, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connectZooKeeper(_ context.Context, endpoint string) (client, error) {
	const session = 10 * time.Second
	c, _, err := zk.Connect([]string{endpoint}, session, zk.WithLogger(silent{}))
	if err != nil {
		return client{}, err
	}
	open := zk.WorldACL(zk.PermAll)
	for _, path := range append([]string{"/own"}, services("/own/")...) {
		if _, err := c.Create(path, nil, 0, open); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return client{}, fmt.Errorf("creating %s: %w", path, err)
		}
	}
	return client{func(_ context.Context, in registry.Instance) error {
		value, err := json.Marshal(map[string]any{
			"name": in.Service, "id": in.Pod, "address": in.Address, "port": in.Port, "payload": metadata(in),
		})
		if err != nil {
			return err
		}
		_, err = c.Create("/own/"+in.Service+"/"+in.Pod, value, 0, open)
		return err
	}, c.Close}, nil
}

func services(prefix string) (names []string) {
	for i := range serviceCount {
		names = append(names, fmt.Sprintf("%sweb-%d", prefix, i))
	}
	return names
}

// connectNacos registers persistent instances, as Rollcall does by default.
func connectNacos(ctx context.Context, endpoint string) (client, error) {
	if err := makeUnprobed(ctx, registries.NewClient(endpoint+"/nacos/v1/ns"), services("own-")); err != nil {
		return client{}, err
	}
	host, port, err := net.SplitHostPort(endpoint[len("http://"):])
	if err != nil {
		return client{}, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return client{}, err
	}
	dir, err := os.MkdirTemp("", "rollcall-nacos-client-")
	if err != nil {
		return client{}, err
	}
	c, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: constant.NewClientConfig(constant.WithNotLoadCacheAtStart(true), constant.WithLogDir(dir),
			constant.WithCacheDir(dir), constant.WithLogLevel("error")),
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig(host, number)},
	})
	if err != nil {
		return client{}, err
	}
	return client{func(_ context.Context, in registry.Instance) error {
		done, err := c.RegisterInstance(vo.RegisterInstanceParam{
			ServiceName: "own-" + in.Service, Ip: in.Address, Port: uint64(in.Port), Weight: 1, Enable: true, Healthy: true,
			Metadata: metadata(in), Ephemeral: false,
		})
		if err == nil && !done {
			err = errors.New("the server has refused it")
		}
		return err
	}, func() {
		c.CloseClient()
		_ = os.RemoveAll(dir)
	}}, nil
}

// makeUnprobed makes services whose instances the server does not probe, as those of Rollcall's: what it does by itself all the time would
// count for whose turn it is.
func makeUnprobed(ctx context.Context, server *registries.Client, services []string) error {
	for _, service := range services {
		form := url.Values{"serviceName": {"DEFAULT_GROUP@@" + service}, "ephemeral": {"false"}, "protectThreshold": {"0"}}
		if _, err := server.Do(ctx, http.MethodPost, "/service?"+form.Encode(), nil); err != nil {
			return fmt.Errorf("creating %s: %w", service, err)
		}
		form = url.Values{
			"serviceName": form["serviceName"], "clusterName": {"DEFAULT"}, "healthChecker": {`{"type":"NONE"}`},
			"checkPort": {"8080"}, "useInstancePort4Check": {"true"},
		}
		if _, err := server.Do(ctx, http.MethodPut, "/cluster?"+form.Encode(), nil); err != nil {
			return fmt.Errorf("turning the health checker of %s off: %w", service, err)
		}
	}
	return nil
}

// connectEureka makes plain requests. Netflix's client is for Java, and registers the one instance that its process is;
// hudl/fargo, for Go, had its last release in 2021.
func connectEureka(_ context.Context, endpoint string) (client, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: config.DefaultMaxInFlight}
	server := registries.Client{
		URL: endpoint, HTTP: &http.Client{Transport: transport}, Header: http.Header{"Content-Type": {"application/json"}},
	}
	return client{func(ctx context.Context, in registry.Instance) error {
		app := "OWN-" + in.Service
		body, err := json.Marshal(map[string]any{"instance": map[string]any{
			"instanceId": in.Pod, "hostName": in.Address, "app": app, "vipAddress": app, "ipAddr": in.Address, "status": "UP",
			"port":     map[string]any{"$": in.Port, "@enabled": "true"},
			"metadata": metadata(in), "leaseInfo": map[string]any{"renewalIntervalInSecs": 30, "durationInSecs": 90},
			"dataCenterInfo": map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
		}})
		if err != nil {
			return err
		}
		_, err = server.Do(ctx, http.MethodPost, "/apps/"+app, body)
		return err
	}, transport.CloseIdleConnections}, nil
}
