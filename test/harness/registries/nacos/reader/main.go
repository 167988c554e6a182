// Command reader subscribes to a service with Nacos' own Go client, as an application does, and writes a line of JSON for
// each list of instances that the client gives it. It is a module of its own to keep the client's dependencies apart.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
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
	if err := subscribe(client, param); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	// Whoever started this holds the other end of its input, and that ends with them.
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// subscribe tries again for a while: a connection is good for it only some time after the client has made it.
func subscribe(client naming_client.INamingClient, param *vo.SubscribeParam) error {
	const (
		attempts = 100
		pause    = 200 * time.Millisecond
	)
	for attempt := 1; ; attempt++ {
		err := client.Subscribe(param)
		if err == nil || attempt == attempts {
			return err
		}
		time.Sleep(pause)
	}
}
