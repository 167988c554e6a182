package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	dashboardUsage = "pictures dashboard DIR PROMETHEUS PAGE"
	// shown is how much time the picture of the dashboard covers, and asking how long Prometheus has for an answer.
	shown, asking = 10 * time.Minute, 10 * time.Second
	// anything is what Prometheus has if it scrapes Rollcall.
	anything = `/api/v1/query?query=rollcall_registry_slots%7Bjob=%22rollcall%22%7D`
)

// dashboard has Chromium make screenshots of Grafana's dashboard in dir, with what a Prometheus server has of the last minutes. It is not
// Grafana that draws them, but its components, from the same JSON: page is where the code of hack/dashboard is built.
func dashboard(ctx context.Context, args []string) error {
	if len(args) != 3 { //nolint:mnd // as in the usage
		return errors.New("usage: " + dashboardUsage)
	}
	dir, prometheus, page := args[0], args[1], args[2]
	source, err := url.Parse(prometheus)
	if err != nil {
		return fmt.Errorf("PROMETHEUS: %w", err)
	}
	config, err := cache.Dir(ctx, "config/components/prometheus")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(source) }})
	mux.HandleFunc("/grafana.json", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(config, "grafana.json"))
	})
	mux.Handle("/", http.FileServer(http.Dir(page)))
	server := httptest.NewServer(mux)
	defer server.Close()
	if err := scrapes(ctx, server.URL); err != nil {
		return fmt.Errorf("asking %s: %w", prometheus, err)
	}
	now := time.Now()
	for _, shot := range []struct{ theme, scheme string }{{"light", "1"}, {"dark", "0"}} {
		path, err := filepath.Abs(filepath.Join(dir, "dashboard-"+shot.theme+".png"))
		if err != nil {
			return err
		}
		address := fmt.Sprintf("%s/?theme=%s&from=%d&to=%d", server.URL, shot.theme, now.Add(-shown).Unix(), now.Unix())
		if err := chromium(ctx, address, path, "1432,1440", shot.scheme, "--virtual-time-budget=10000"); err != nil {
			return err
		}
	}
	return nil
}

// scrapes returns an error unless Prometheus has something of Rollcall: the pictures would be empty.
func scrapes(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	body, err := registries.NewClient(address).Do(ctx, http.MethodGet, anything, nil)
	if err == nil && !bytes.Contains(body, []byte("rollcall_registry_slots")) {
		err = fmt.Errorf(`it has no metrics of Rollcall with job="rollcall": %s`, body)
	}
	return err
}
