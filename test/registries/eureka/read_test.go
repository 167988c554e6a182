package eureka_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

// instance is what a client reads of one: a field or two more than the driver does, by other names.
type instance struct {
	ID               string            `json:"instanceId"`
	App              string            `json:"app"`
	Host             string            `json:"hostName"`
	IP               string            `json:"ipAddr"`
	VIP              string            `json:"vipAddress"`
	Status           string            `json:"status"`
	OverriddenStatus string            `json:"overriddenStatus"`
	Port             portOf            `json:"port"`
	Metadata         map[string]string `json:"metadata"`
	LastDirty        string            `json:"lastDirtyTimestamp"`
	Action           string            `json:"actionType"`
}

type portOf struct {
	Number  int    `json:"$"`
	Enabled string `json:"@enabled"`
}

// apps reads a listing of the server's.
func apps(ctx context.Context, server *eureka.Server, path string) ([]instance, error) {
	raw, err := server.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	var listing struct {
		Applications struct {
			Application []struct {
				Instance []instance `json:"instance"`
			} `json:"application"`
		} `json:"applications"`
	}
	if err := json.Unmarshal(raw, &listing); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", path, err)
	}
	var all []instance
	for _, app := range listing.Applications.Application {
		all = append(all, app.Instance...)
	}
	return all, nil
}

// everything reads the whole registry past the caches: what they hold is told apart by the regions that were asked for, and
// this one is new. (It stays in the server's memory, so this is nothing for a driver.)
func everything(ctx context.Context, server *eureka.Server) ([]instance, error) {
	return apps(ctx, server, "/apps?regions="+rand.Text())
}

// truth is everything of a cluster, as the contract has it.
func truth(ctx context.Context, server *eureka.Server, cluster string) ([]registry.Entry, error) {
	all, err := everything(ctx, server)
	if err != nil {
		return nil, err
	}
	var entries []registry.Entry
	for _, i := range all {
		if i.Metadata[registry.MetaCluster] != cluster {
			continue
		}
		e := registry.Entry{
			Instance: registry.Instance{Service: i.VIP, Address: i.IP, Port: i.Port.Number}, State: registry.OutOfService,
		}
		e.SetMeta(i.Metadata)
		if i.Status == "UP" {
			e.State = registry.InService
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// web is a pod's instance, of a service that no other test has.
func web(t *testing.T, n int) registry.Instance {
	t.Helper()
	return registry.Instance{
		Service: "web-" + serial(t), Address: fmt.Sprintf("10.0.0.%d", n), Port: 8080,
		Cluster: "test", Namespace: "shop", Pod: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("uid-%d", n),
	}
}

// serial is the test's own, and the same whenever it asks.
func serial(t *testing.T) string {
	t.Helper()
	sum := uint64(0)
	for _, c := range t.Name() {
		sum = sum*31 + uint64(c)
	}
	return strconv.FormatUint(sum, 36)
}

func pathOf(in registry.Instance) string {
	return "/apps/" + url.PathEscape(in.Service) + "/" + url.PathEscape(in.Endpoint()+":"+in.Service)
}
