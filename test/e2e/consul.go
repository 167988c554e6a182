package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	consulAddress = "127.0.0.1:8500"
	// Those who write and those who read come by doors of their own, so that the registry can be away for one of them: a
	// Consul without a leader refuses writes and still answers readers.
	writersPort, readersPort = 9501, 9502
	// lookUpTimeout is how long a client waits for Consul, besides how long Consul may hold a blocking query.
	lookUpTimeout = 3 * time.Second
)

// consulServer is a real Consul behind two doors.
type consulServer struct {
	process          *process.Process
	writers, readers *door
}

func startConsul(ctx context.Context, l *process.Launcher, dir, path string) (*consulServer, error) {
	p, err := process.Start(l, dir, process.Command{Name: "consul", Path: path, Args: []string{
		"agent", "-dev", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn",
		// All clients come from one address.
		`-hcl=limits { http_max_conns_per_client = 5000 }`,
	}})
	if err != nil {
		return nil, err
	}
	c := &consulServer{process: p}
	if c.writers, err = openDoor(ctx, fmt.Sprintf(":%d", writersPort), consulAddress); err != nil {
		return nil, err
	}
	if c.readers, err = openDoor(ctx, fmt.Sprintf(":%d", readersPort), consulAddress); err != nil {
		return nil, err
	}
	return c, p.WaitReady(ctx, func(ctx context.Context) error {
		_, err := lookUp(ctx, http.DefaultClient, "consul", 0)
		return err
	})
}

// instance is one that clients may use.
type instance struct{ Address, Pod string }

// view is what a client knows of a service, and Consul's index of it.
type view struct {
	instances []instance
	index     uint64
}

// lookUp reads the instances of a service that are in rotation. With the index of an earlier view it returns when there
// is something new, or after some seconds.
func lookUp(ctx context.Context, httpClient *http.Client, service string, index uint64) (view, error) {
	const blockFor = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout+blockFor)
	defer cancel()
	query := url.Values{"passing": {"1"}, "index": {strconv.FormatUint(index, 10)}, "wait": {blockFor.String()}}
	address := fmt.Sprintf("http://127.0.0.1:%d/v1/health/service/%s?%s", readersPort, service, query.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return view{}, fmt.Errorf("asking Consul: %w", err)
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return view{}, fmt.Errorf("asking Consul: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return view{}, errors.New("Consul answers " + response.Status)
	}
	var nodes []struct {
		Service struct {
			Address string
			Port    int
			Meta    map[string]string
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&nodes); err != nil {
		return view{}, fmt.Errorf("reading Consul's answer: %w", err)
	}
	var v view
	if v.index, err = strconv.ParseUint(response.Header.Get("X-Consul-Index"), 10, 64); err != nil {
		return view{}, fmt.Errorf("reading Consul's index: %w", err)
	}
	for _, n := range nodes {
		s := n.Service
		address := fmt.Sprintf("%s:%d", s.Address, s.Port)
		v.instances = append(v.instances, instance{Address: address, Pod: s.Meta["rollcall-pod"]})
	}
	return v, nil
}
