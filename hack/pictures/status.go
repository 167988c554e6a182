package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/resync"
	"github.com/rollcall-dev/rollcall/internal/statuspage"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

// chromiumPatience bounds one screenshot.
const chromiumPatience = time.Minute

// status has Chromium make screenshots of the status page in dir, of a rollout that waits for a registry which is down.
func status(ctx context.Context, dir string) error {
	mux := http.NewServeMux()
	statuspage.New(example, func(*http.Request, string) string { return "" }).Register(mux)
	server := httptest.NewServer(mux)
	defer server.CloseClientConnections() // the streams do not end by themselves
	for _, shot := range []struct{ name, size, scheme string }{
		{"status-light", "1060,740", "1"}, {"status-dark", "1060,740", "0"}, {"status-phone", "500,1040", "1"},
	} {
		path, err := filepath.Abs(filepath.Join(dir, shot.name+".png"))
		if err != nil {
			return err
		}
		if err := chromium(ctx, server.URL+"/status", path, shot.size, shot.scheme, "--timeout=3000"); err != nil {
			return err
		}
	}
	return nil
}

// chromium makes a screenshot of a page. until is its flag for when.
func chromium(ctx context.Context, page, path, size, scheme, until string) error {
	profile, err := os.MkdirTemp("", "chromium-")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, chromiumPatience)
	defer cancel()
	arguments := []string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--blink-settings=preferredColorScheme=" + scheme, "--user-data-dir=" + profile, "--window-size=" + size, until,
		"--screenshot=" + path, page}
	out, err := exec.CommandContext(ctx, "chromium", arguments...).CombinedOutput() //nolint:gosec // all are this program's own
	if err != nil {
		err = fmt.Errorf("chromium: %w\n%s", err, out)
	}
	return errors.Join(err, os.RemoveAll(profile))
}

// example are the facts of two registries, of which one is down.
func example() statuspage.Facts {
	now := time.Now()
	f := statuspage.Facts{
		Manager: statuspage.Manager{Name: "rollcall-6d5f7c9b8-x2x7k", Leader: "rollcall-6d5f7c9b8-x2x7k", Leads: true},
		Drivers: map[string]string{"default": "consul", "legacy": "eureka"},
		Clients: map[string]registryclient.Status{
			"default": {Slots: 96, InUse: 5, Breaker: "closed"}, "legacy": {Slots: 32, InUse: 1, Queued: 4, Breaker: "open"},
		},
		Resyncs: map[string]resync.Status{
			"default": {Lists: true, Succeeded: now.Add(-24 * time.Second)},
			"legacy": {
				Lists: true, Succeeded: now.Add(-4 * time.Minute),
				Failure: "listing: dial tcp 10.0.8.4:8761: connect: connection refused",
			},
		},
	}
	add := func(namespace, pod, service, registry string, want lifecycle.Want, acknowledged bool) {
		id := lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: namespace, Name: pod}, UID: types.UID(pod)}
		address := fmt.Sprintf("10.0.3.%d", 11+len(f.Instances))
		in := lifecycle.Key{Registry: registry, Service: lifecycle.Service(service), Address: address, Port: 8080}
		f.Instances = append(f.Instances, tracker.Seen{Pod: id, In: in, Want: want, Acknowledged: acknowledged})
	}
	waits := func(namespace, pod, hook, reason, message string, warning bool, waited time.Duration) {
		f.Waits = append(f.Waits, metrics.Wait{
			Namespace: namespace, Pod: pod, UID: pod, Hook: hook, Reason: reason, Message: message, Warning: warning, Since: now.Add(-waited),
		})
	}
	add("shop", "orders-7k2pd", "orders", "legacy", lifecycle.OutOfService, false)
	waits("shop", "orders-7k2pd", "inPlaceUpdate", "RegistryUnavailable",
		`service "orders" at 10.0.3.11:8080: dial tcp 10.0.8.4:8761: connect: connection refused`, true, 4*time.Minute)
	add("shop", "web-9fq4c", "web", "default", lifecycle.OutOfService, true)
	waits("shop", "web-9fq4c", "preDelete", "Draining",
		"out of rotation since "+now.Add(-11*time.Second).UTC().Format(time.RFC3339)+", drains for 15s", false, 12*time.Second)
	waits("shop", "web-m5x8t", "preNormal", "NotReady", "the pod is not ready", false, 7*time.Second)
	for range 3 {
		add("shop", "web", "web", "default", lifecycle.InService, true)
		add("shop", "orders", "orders", "legacy", lifecycle.InService, true)
	}
	for range 12 {
		add("bank", "ledger", "ledger", "default", lifecycle.InService, true)
	}
	return f
}
