// Command reader subscribes to a service with Nacos' own Go client, as an application does, and writes a line of JSON for
// each list of instances that the client gives it. It can register itself, too. It is a module of its own to keep the client's dependencies apart.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
)

// source is set when it is built, to what it was built from.
var source string

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reader", source+":", err)
		os.Exit(1)
	}
}

func run() error {
	host := flag.String("host", "127.0.0.1", "the server's host")
	port := flag.Uint64("port", 8848, "the server's port")
	user := flag.String("user", "", "who to log in as, with the password in NACOS_PASSWORD")
	service := flag.String("service", "", "the service to subscribe to")
	group := flag.String("group", constant.DEFAULT_GROUP, "its group")
	dir := flag.String("dir", os.TempDir(), "where the client keeps its log and cache")
	itself := flag.String("register", "", "the IP and port, as in 10.0.0.1:80, to register in the service until the input ends")
	flag.Parse()

	client, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: constant.NewClientConfig(
			constant.WithUsername(*user), constant.WithPassword(os.Getenv("NACOS_PASSWORD")),
			constant.WithNotLoadCacheAtStart(true), constant.WithLogDir(*dir), constant.WithCacheDir(*dir),
			// Otherwise the client keeps an instance that is the last of its service, whatever the server says.
			constant.WithUpdateCacheWhenEmpty(true),
		),
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig(*host, *port)},
	})
	if err != nil {
		return fmt.Errorf("making the client: %w", err)
	}
	defer client.CloseClient()
	app, err := newApplication(client, *service, *group, *itself)
	if err != nil {
		return err
	}
	if err := app.register(); err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	param := &vo.SubscribeParam{
		ServiceName: *service, GroupName: *group,
		SubscribeCallback: func(instances []model.Instance, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintln(os.Stderr, "reader:", err)
			}
			if instances == nil {
				instances = []model.Instance{}
			}
			_ = out.Encode(instances)
			app.listed(instances)
		},
	}
	if err := again(func() error { return client.Subscribe(param) }); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	// Whoever started this holds the other end of its input, and that ends with them.
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := app.deregister(); err != nil {
		return fmt.Errorf("deregistering: %w", err)
	}
	return nil
}

// application is what registers itself. The zero value registers nothing.
type application struct {
	client         naming_client.INamingClient
	service, group string
	ip             string
	port           uint64

	mu   sync.Mutex
	gone chan struct{} // closed when a list lacks it that has deregistered itself; nil before it does
}

func newApplication(client naming_client.INamingClient, service, group, at string) (*application, error) {
	a := &application{client: client, service: service, group: group}
	if at == "" {
		return a, nil
	}
	address, err := netip.ParseAddrPort(at)
	if err != nil {
		return nil, fmt.Errorf("-register: %w", err)
	}
	a.ip, a.port = address.Addr().String(), uint64(address.Port())
	return a, nil
}

func (a *application) register() error {
	if a.ip == "" {
		return nil
	}
	return again(func() error {
		_, err := a.client.RegisterInstance(vo.RegisterInstanceParam{
			Ip: a.ip, Port: a.port, Weight: 1, Enable: true, Healthy: true, Ephemeral: true,
			ServiceName: a.service, GroupName: a.group, ClusterName: "DEFAULT",
		})
		return err
	})
}

// deregister returns when those who have subscribed know of it.
func (a *application) deregister() error {
	if a.ip == "" {
		return nil
	}
	gone := make(chan struct{})
	a.mu.Lock()
	a.gone = gone
	a.mu.Unlock()
	err := again(func() error {
		_, err := a.client.DeregisterInstance(vo.DeregisterInstanceParam{
			Ip: a.ip, Port: a.port, Ephemeral: true, ServiceName: a.service, GroupName: a.group, Cluster: "DEFAULT",
		})
		return err
	})
	if err != nil {
		return err
	}
	select {
	case <-gone:
		return nil
	case <-time.After(time.Minute):
		return errors.New("it is still listed after a minute")
	}
}

func (a *application) listed(instances []model.Instance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, i := range instances {
		if i.Ip == a.ip && i.Port == a.port {
			return
		}
	}
	if a.gone != nil {
		close(a.gone)
		a.gone = nil
	}
}

// again tries for a while: a connection is good for calls only some time after the client has made it.
func again(call func() error) error {
	const (
		attempts = 100
		pause    = 200 * time.Millisecond
	)
	for attempt := 1; ; attempt++ {
		err := call()
		if err == nil || attempt == attempts {
			return err
		}
		time.Sleep(pause)
	}
}
