package main

import (
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// readTimeout bounds how long a request to a registry of the demo's own may take to arrive.
const readTimeout = time.Second

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
