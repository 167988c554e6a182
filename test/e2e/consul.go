package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	consulAddress, consulSecureAddress = "127.0.0.1:8500", "127.0.0.1:8501"
	// Those who write and those who read come by doors of their own, so that the registry can be away for one of them: a
	// Consul without a leader refuses writes and still answers readers. Those who write come by https.
	writersPort, readersPort = 9501, 9502
	// lookUpTimeout is how long a client waits for Consul, besides how long Consul may hold a blocking query.
	lookUpTimeout = 3 * time.Second
	// blockFor is how long a client waits for news before it looks all the same.
	blockFor = 5 * time.Second
)

// directory is the registry that the arms' clients find pods by.
type directory interface {
	// lookUp reads the instances of a service that are in rotation, and an index of them. With the index of an earlier look it
	// returns when there is something new, or after some seconds.
	lookUp(ctx context.Context, service string, index uint64) (entries []registry.Entry, now uint64, err error)
	// takeNoWrites has it take none for some time. It still answers readers.
	takeNoWrites(ctx context.Context, span time.Duration) error
}

// consulServer is a real Consul behind two doors.
type consulServer struct {
	process          *process.Process
	writers, readers *network.Network
}

func startConsul(ctx context.Context, l *process.Launcher, o options) (*consulServer, error) {
	built, err := filepath.Abs(o.built)
	if err != nil {
		return nil, fmt.Errorf("finding Consul's certificate: %w", err)
	}
	tls := fmt.Sprintf(`-hcl={"ports": {"https": 8501}, "tls": {"https": {"cert_file": %q, "key_file": %q}}}`,
		filepath.Join(built, certFile), filepath.Join(built, keyFile))
	p, err := process.Start(l, o.dir, process.Command{Name: "consul", Path: o.program, Args: []string{
		"agent", "-dev", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn",
		// All clients come from one address.
		`-hcl=limits { http_max_conns_per_client = 5000 }`, tls,
	}})
	if err != nil {
		return nil, err
	}
	c := &consulServer{process: p}
	if c.writers, err = openDoor(ctx, fmt.Sprintf(":%d", writersPort), consulSecureAddress); err != nil {
		return nil, err
	}
	if c.readers, err = openDoor(ctx, fmt.Sprintf(":%d", readersPort), consulAddress); err != nil {
		return nil, err
	}
	return c, p.WaitReady(ctx, func(ctx context.Context) error {
		_, _, err := c.lookUp(ctx, "consul", 0)
		return err
	})
}

// openDoor has an address lead to another one until ctx ends.
func openDoor(ctx context.Context, address, target string) (*network.Network, error) {
	door, err := network.Start(ctx, address, target)
	if err == nil {
		context.AfterFunc(ctx, door.Stop)
	}
	return door, err
}

// takeNoWrites implements directory: Consul refuses writes, and answers readers, while it has no leader.
func (c *consulServer) takeNoWrites(ctx context.Context, span time.Duration) error {
	c.writers.Set(network.Terms{Fault: network.Refuse})
	wait.Pause(ctx, span)
	return c.writers.Clear(ctx)
}

// lookUp implements directory.
func (*consulServer) lookUp(ctx context.Context, service string, index uint64) (entries []registry.Entry, now uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout+blockFor)
	defer cancel()
	query := url.Values{"passing": {"1"}, "index": {strconv.FormatUint(index, 10)}, "wait": {blockFor.String()}}
	address := fmt.Sprintf("http://127.0.0.1:%d/v1/health/service/%s?%s", readersPort, service, query.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, 0, fmt.Errorf("asking Consul: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("asking Consul: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, 0, errors.New("Consul answers " + response.Status)
	}
	var nodes []read.ConsulNode
	if err := json.NewDecoder(response.Body).Decode(&nodes); err != nil {
		return nil, 0, fmt.Errorf("reading Consul's answer: %w", err)
	}
	if now, err = strconv.ParseUint(response.Header.Get("X-Consul-Index"), 10, 64); err != nil {
		return nil, 0, fmt.Errorf("reading Consul's index: %w", err)
	}
	return read.ConsulEntries(nodes), now, nil
}
