package registry_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// A driver marks only what it knows; any other error is retryable.
func ExampleTerminal() {
	refused := errors.New("the server does not know the token")
	err := fmt.Errorf("registering web at 10.0.0.1:80: %w", registry.Terminal(registry.FieldError("auth.tokenFile", refused)))
	field, _ := registry.FieldOf(err)
	fmt.Println(registry.CodeOf(err) == registry.CodeTerminal, field)
	fmt.Println(registry.CodeOf(errors.New("connection refused")) == registry.CodeTerminal)
	// Output:
	// true auth.tokenFile
	// false
}

// A server may say when to come back. More than an hour counts as an hour: a slip there must not strand a pod.
func ExampleRetryAfter() {
	after, said := registry.RetryAfterOf(registry.RetryAfter(errors.New("busy"), 24*time.Hour))
	fmt.Println(after, said)
	// Output: 1h0m0s true
}

// What a registry that keeps pairs of strings with an entry is given, and what is read back.
func ExampleInstance_Meta() {
	in := registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: 80, Weight: 50, Zone: "eu-1a",
		Cluster: "prod-1", Namespace: "shop", Pod: "web-x7k2p", UID: "5f1c2f0e",
		Metadata: map[string]string{"version": "v2"},
	}
	fmt.Println(in.Meta())
	var back registry.Instance
	back.SetMeta(in.Meta())
	fmt.Println(back.Pod, back.Weight, back.Metadata)
	// Output:
	// map[rollcall-cluster:prod-1 rollcall-namespace:shop rollcall-pod:web-x7k2p rollcall-uid:5f1c2f0e version:v2 weight:50 zone:eu-1a]
	// web-x7k2p 50 map[version:v2]
}

// A late call for a pod that is gone must spare the entry of the pod that has its address now.
func ExampleInstance_Owns() {
	gone := registry.Instance{UID: "uid-1", Registry: "default"}
	fmt.Println(gone.Owns("uid-1", "default"), gone.Owns("uid-2", "default"), gone.Owns("uid-1", "other"), gone.Owns("", ""))
	// Output: true false false false
}

// A lease that is renewed every 10 seconds must outlast a leader that dies right after it.
func ExampleConfig_LeastLease() {
	fmt.Println(registry.Config{}.LeastLease(10 * time.Second))
	// Output: 40s
}
