// Command nacos subscribes to a service with Nacos' own Go client, as an application does, and writes a line of JSON for
// each list of instances that the client gives it. It can register itself, too.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/common/security"
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
	namespace := flag.String("namespace", "", "the ID of the namespace, empty for public")
	dir := flag.String("dir", os.TempDir(), "where the client keeps its log and cache")
	itself := flag.String("register", "", "the IP and port, as in 10.0.0.1:80, to register in the service until the input ends, and once more at each line of it")
	sign := flag.String("sign", "", "text to sign with the secret key in NACOS_PASSWORD, and nothing else is done")
	flag.Parse()

	if *sign != "" {
		return signAs(*user, os.Getenv("NACOS_PASSWORD"), *sign, *group, *service)
	}
	client, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: constant.NewClientConfig(
			constant.WithNamespaceId(*namespace), constant.WithUsername(*user), constant.WithPassword(os.Getenv("NACOS_PASSWORD")),
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
		},
	}
	if err := again(func() (bool, error) { return true, client.Subscribe(param) }); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	// The process that started this holds the other end of its input, which ends with that process.
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		app.renewals++
		if err := app.register(); err != nil {
			return fmt.Errorf("registering again: %w", err)
		}
	}
	if err := app.deregister(); err != nil {
		return fmt.Errorf("deregistering: %w", err)
	}
	return nil
}

// signed is what the client adds to a request of an access key, and its signature of another text.
type signed struct {
	Added     map[string]string `json:"added"`
	Signature string            `json:"signature"`
}

func signAs(accessKey, secretKey, text, group, service string) error {
	client := security.NewRamAuthClient(*constant.NewClientConfig(constant.WithAccessKey(accessKey), constant.WithSecretKey(secretKey)))
	if _, err := client.Login(); err != nil {
		return fmt.Errorf("taking the keys: %w", err)
	}
	signature, err := security.Sign(text, secretKey)
	if err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	added := client.GetSecurityInfo(security.BuildNamingResource("public", group, service))
	return json.NewEncoder(os.Stdout).Encode(signed{added, signature})
}

// application is what registers itself. The zero value registers nothing.
type application struct {
	client         naming_client.INamingClient
	service, group string
	ip             string
	port           uint64
	renewals       int // how often it has registered again; readers can tell by the metadata
}

func newApplication(client naming_client.INamingClient, service, group, at string) (*application, error) {
	a := &application{client: client, service: service, group: group}
	if at == "" {
		return a, nil
	}
	// As it is spelled: Spring writes an IPv6 address in brackets, which come in addition to those before a port.
	colon := strings.LastIndex(at, ":")
	port, err := strconv.ParseUint(at[colon+1:], 10, 16)
	if err != nil || colon < 0 {
		return nil, fmt.Errorf("-register: %q is no address and port: %w", at, err)
	}
	a.ip, a.port = strings.TrimSuffix(strings.TrimPrefix(at[:colon], "["), "]"), port
	return a, nil
}

func (a *application) register() error {
	if a.ip == "" {
		return nil
	}
	return again(func() (bool, error) {
		return a.client.RegisterInstance(vo.RegisterInstanceParam{
			Ip: a.ip, Port: a.port, Weight: 3, Enable: true, Healthy: true, Ephemeral: true,
			Metadata:    map[string]string{"version": "v1", "renewals": strconv.Itoa(a.renewals)},
			ServiceName: a.service, GroupName: a.group, ClusterName: "DEFAULT",
		})
	})
}

func (a *application) deregister() error {
	if a.ip == "" {
		return nil
	}
	return again(func() (bool, error) {
		return a.client.DeregisterInstance(vo.DeregisterInstanceParam{
			Ip: a.ip, Port: a.port, Ephemeral: true, ServiceName: a.service, GroupName: a.group, Cluster: "DEFAULT",
		})
	})
}

// again tries for a while: a connection is good for calls only some time after the client has made it, and a busy client renews
// its token too late. Of what the server refuses then, the client says false and no error.
func again(call func() (bool, error)) error {
	const (
		attempts = 100
		pause    = 200 * time.Millisecond
	)
	for attempt := 1; ; attempt++ {
		done, err := call()
		if err == nil && !done {
			err = errors.New("the server has refused it")
		}
		if err == nil || attempt == attempts {
			return err
		}
		time.Sleep(pause)
	}
}
