package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/registry"
)

// trial is the entry by which a registry shows that it can be written: no client looks it up, and nothing answers at that address of
// documentation (RFC 5737).
const (
	trial        = "rollcall-check"
	trialAddress = "192.0.2.1"
	trialPort    = 9
)

// takesBack is how often the trial's entry is taken back. If that fails, the leader's next resync removes it, as the entry of a pod that is
// gone.
const takesBack = 3

// checkRegistries asks each registry of the configuration, and writes an entry and removes it again. It needs no lease: no manager knows
// the entry.
func (o *options) checkRegistries(ctx context.Context, f *flags) error {
	c, err := config.Load(f.config, o.limits())
	if err != nil {
		return err
	}
	logger, _ := o.log(f)
	d := &drivers{
		constructors: o.constructors, metrics: metrics.NewRegistryMetrics(prometheus.NewRegistry()), logger: logger, version: o.version,
	}
	opened, err := d.open(ctx, c)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", f.config, err), opened.closeBut(nil))
	}
	failed := 0
	for _, name := range c.RegistryNames() {
		one := entries.RegistryCheck{Registry: name, Driver: c.Registries[name].Driver}
		one.Written, one.Note, err = try(ctx, c, name, opened.get(name).client)
		if err != nil {
			one.Error = err.Error()
			failed++
		}
		line, _ := json.Marshal(one) // which has only texts
		_, _ = fmt.Fprintln(o.output, string(line))
	}
	if err := opened.closeBut(nil); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("registries that failed: %d of %d", failed, len(c.Registries))
	}
	return nil
}

// try reports whether an entry was written and removed, or why none is to be.
func try(ctx context.Context, c *config.Config, name string, client *registryclient.Client) (written bool, note string, err error) {
	switch {
	case client.CallsPods():
		return false, "it has no server: Rollcall asks each pod", nil
	case client.Follows():
		return false, "Rollcall writes nothing there: it follows the pods' condition", nil
	}
	if client.Lists() && client.PlaceTemplate() == "" {
		listing, cancel := context.WithTimeout(ctx, client.ListTimeout())
		defer cancel()
		if _, err := client.List(listing, c.Cluster); err != nil {
			return false, "", fmt.Errorf("listing the entries: %w", err)
		}
	}
	switch {
	case c.Registries[name].RegisteredByApp:
		return false, "applications write the entries there: only their pods show whether Rollcall can take them out", nil
	case client.PlaceTemplate() != "":
		return false, "the place of an entry depends on its pod: only pods show whether Rollcall can write there", nil
	}
	err = write(ctx, client, registry.Instance{
		Service: trial, Address: trialAddress, Port: trialPort, Cluster: c.Cluster, Namespace: trial, Pod: trial,
		UID: trial + "-" + rand.Text(), Registry: name,
	})
	return err == nil, "", err
}

// write takes the entry back after an error too: the registry may have written it.
func write(ctx context.Context, client *registryclient.Client, in registry.Instance) error {
	change := func(to registry.State) error {
		return client.Change(ctx, registryclient.Caller{}, registry.Change{Instance: in, State: to})
	}
	written := change(registry.InService)
	if written != nil {
		written = fmt.Errorf("writing an entry: %w", written)
	}
	var left error
	for range takesBack {
		if left = change(registry.Absent); left == nil {
			return written
		}
	}
	return errors.Join(written, fmt.Errorf("removing the entry %s at %s, which the leader's next resync removes: %w",
		in.Service, in.Endpoint(), left))
}
