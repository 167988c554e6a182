package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/rollcall-dev/rollcall/test/cache"
	"github.com/rollcall-dev/rollcall/test/process"
)

const toxiproxyName = "toxiproxy"

// toxiproxy is the network between the managers and the registry.
type toxiproxy struct {
	process *process.Process
	api     string
	// address is where the registry is reached through it.
	address string
}

func toxiproxyModule(ctx context.Context) (cache.Module, error) {
	dir, err := cache.Dir(ctx, "test/chaos/toxiproxy")
	if err != nil {
		return cache.Module{}, err
	}
	return cache.Module{
		Name: toxiproxyName, Dir: dir, Requires: "github.com/Shopify/toxiproxy/v2",
		Binaries: []cache.Binary{{Name: toxiproxyName, Package: "github.com/Shopify/toxiproxy/v2/cmd/server"}},
	}, nil
}

// startToxiproxy builds the server unless the cache has it, and lets it lead to the address.
func startToxiproxy(ctx context.Context, launcher *process.Launcher, dir, upstream string, log io.Writer) (*toxiproxy, error) {
	module, err := toxiproxyModule(ctx)
	if err != nil {
		return nil, err
	}
	built, err := cache.Build(ctx, cache.NewProgress(log, "chaos"), module)
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	t := &toxiproxy{api: "http://" + local(ports[0]), address: local(ports[1])}
	t.process, err = process.Start(launcher, dir, process.Command{
		Name: toxiproxyName, Path: built.Paths[toxiproxyName],
		Args: []string{"-host=127.0.0.1", "-port=" + strconv.Itoa(ports[0])},
		Env:  []string{"LOG_LEVEL=warn"},
	})
	if err != nil {
		return nil, err
	}
	err = t.process.WaitReady(ctx, func(ctx context.Context) error { return t.ask(ctx, http.MethodGet, "/version", nil) })
	if err == nil {
		err = t.ask(ctx, http.MethodPost, "/proxies", map[string]any{
			"name": "registry", "listen": t.address, "upstream": upstream, "enabled": true,
		})
	}
	if err != nil {
		t.process.Kill()
		return nil, err
	}
	return t, nil
}

func local(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// set begins a fault of the network.
func (t *toxiproxy) set(ctx context.Context, k kind, dice uint64) error {
	stream := []string{"upstream", "downstream"}[dice%2]
	toxic := func(name string, attributes map[string]any) error {
		return t.ask(ctx, http.MethodPost, "/proxies/registry/toxics", map[string]any{
			"name": "fault", "type": name, "stream": stream, "toxicity": faultShare, "attributes": attributes,
		})
	}
	switch k {
	case netSlow:
		// Longer than a time-out of the managers now and then, and never two.
		return toxic("latency", map[string]any{"latency": 1300, "jitter": 1200})
	case netReset:
		return toxic("reset_peer", map[string]any{"timeout": dice % 200})
	case netCut:
		return toxic("timeout", map[string]any{"timeout": 0})
	case netRefuse:
		return t.ask(ctx, http.MethodPost, "/proxies/registry", map[string]any{"enabled": false})
	default:
		return fmt.Errorf("%q is no fault of the network", k)
	}
}

// clear ends every fault.
func (t *toxiproxy) clear(ctx context.Context) error {
	return t.ask(ctx, http.MethodPost, "/reset", nil)
}

func (t *toxiproxy) ask(ctx context.Context, method, path string, body any) error {
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return fmt.Errorf("asking toxiproxy: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, t.api+path, bytes.NewReader(encoded))
	if err != nil {
		return fmt.Errorf("asking toxiproxy: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("asking toxiproxy: %w", err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("toxiproxy answers %s to %s %s: %s", response.Status, method, path, answer)
	}
	return nil
}
