package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// readTimeout bounds one reading of a registry.
const readTimeout = time.Second

// reader returns all that a registry has. Every registry that the demo is shown with needs one of these, and nothing else.
type reader func(ctx context.Context) ([]registry.Entry, error)

// overHTTP reads the list that the memory driver serves.
func overHTTP(url string) reader {
	client := &http.Client{Timeout: readTimeout}
	return func(ctx context.Context) ([]registry.Entry, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, fmt.Errorf("reading the registry: %w", err)
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, fmt.Errorf("reading the registry: %s", plain(err))
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("reading the registry: %s answers %s", url, response.Status)
		}
		var list struct {
			Instances []registry.Entry `json:"instances"`
		}
		if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
			return nil, fmt.Errorf("reading the registry: %w", err)
		}
		return list.Instances, nil
	}
}

// inService picks those that a client may use.
func inService(entries []registry.Entry) []registry.Entry {
	var picked []registry.Entry
	for _, entry := range entries {
		if entry.State == registry.InService {
			picked = append(picked, entry)
		}
	}
	return picked
}
