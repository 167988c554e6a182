package driverkit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// acme is the smallest driver of an HTTP registry: what each of its calls goes through.
type acme struct{ client *driverkit.HTTPClient }

func (a acme) Register(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "registering", in, a.put(ctx, in))
}

func (a acme) put(ctx context.Context, in registry.Instance) error {
	if err := driverkit.CheckInstance(in); err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := a.client.Do(ctx, driverkit.Request{Method: http.MethodPut, Path: "/entries", Body: body})
	if err != nil || answer.OK() {
		return err
	}
	return answer.Refusal(string(answer.Body)).Classified()
}

func ExampleHTTPClient_Do() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "service web is frozen", http.StatusUnprocessableEntity)
	}))
	defer server.Close()
	client, err := driverkit.NewHTTPClient(registry.Config{Endpoint: server.URL}, driverkit.HTTPOptions{Name: "Acme"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	in := registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80, Cluster: "prod-1", Namespace: "shop", Pod: "web-1"}

	err = acme{client}.Register(context.Background(), in)
	fmt.Println(err, registry.CodeOf(err) == registry.CodeTerminal)
	in.UID = "uid-1"
	err = acme{client}.Register(context.Background(), in)
	fmt.Println(err, registry.CodeOf(err) == registry.CodeTerminal)
	// Output:
	// registering web at 10.0.0.1:80: the instance has no uid true
	// registering web at 10.0.0.1:80: Acme answered 422 Unprocessable Entity: service web is frozen true
}

// A call of several requests is made whole at one server: what that has acknowledged another one learns a moment later.
func ExampleHTTPClient_Try() {
	starting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer starting.Close()
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer well.Close()
	client, err := driverkit.NewHTTPClient(registry.Config{Endpoint: starting.URL + "," + well.URL}, driverkit.HTTPOptions{Name: "Acme"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	ctx := context.Background()
	err = client.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
		answer, err := s.Do(ctx, driverkit.Request{Method: http.MethodGet, Path: "/entries"})
		switch {
		case err != nil:
			return err
		case !answer.OK():
			fmt.Println("the first server is away:", s.String() == starting.URL)
			return answer.Refusal("").Classified()
		}
		fmt.Println("the second has taken it:", s.String() == well.URL)
		return nil
	})
	fmt.Println(err)
	// Output:
	// the first server is away: true
	// the second has taken it: true
	// <nil>
}

func ExampleDecodeOptions() {
	options := struct {
		Datacenter string `json:"datacenter"`
	}{Datacenter: "dc1"}
	fmt.Println(driverkit.DecodeOptions(registry.Config{}, &options), options.Datacenter)
	fmt.Println(driverkit.DecodeOptions(registry.Config{Options: []byte(`{"datacentre": "dc2"}`)}, &options))
	// Output:
	// <nil> dc1
	// options: unknown field "datacentre"; known here: datacenter
}

func ExampleReadCredentials() {
	_, err := driverkit.ReadCredentials(registry.Auth{Username: "rollcall"}, driverkit.Token)
	fmt.Println(err)
	_, err = driverkit.ReadCredentials(registry.Auth{Username: "rollcall"}, driverkit.Token, driverkit.Password)
	fmt.Println(err)
	// Output:
	// auth.username: this driver does not use it: remove it
	// auth.passwordFile: is missing: set the file with the password of auth.username
}

func ExampleCredentials_Excerpt() {
	fmt.Println(driverkit.Credentials{Token: "s3cret"}.Excerpt("no such token:\n s3cret"))
	// Output: no such token: [token]
}
