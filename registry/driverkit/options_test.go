package driverkit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestDecodeOptions(t *testing.T) {
	t.Parallel()
	type options struct {
		Datacenter string `json:"datacenter"`
		ACL        bool   `json:"acl,omitempty"`

		Lease driverkit.Duration `json:"lease"`
	}
	type row struct {
		reason  string
		raw     string
		want    string
		lease   time.Duration
		wantErr string
	}
	expect.Each(t, map[string]row{
		"given":       {reason: "what is given is set", raw: `{"datacenter":"dc1"}`, want: "dc1"},
		"not given":   {reason: "the default stays", raw: ``, want: "default"},
		"blank":       {reason: "the default stays", raw: " \n", want: "default"},
		"null":        {reason: "an empty section of YAML is null; the default stays", raw: `null`, want: "default"},
		"empty":       {reason: "the default stays", raw: `{}`, want: "default"},
		"unknown":     {reason: "a misspelt option must not be ignored", raw: `{"datacentre":"dc1"}`, wantErr: `options: unknown field "datacentre"; known here: datacenter, acl, lease`},
		"wrong type":  {reason: "it names the option", raw: `{"datacenter":1}`, wantErr: "options.datacenter: must be of type string, got JSON number"},
		"duration":    {reason: "it has units", raw: `{"lease":"1m30s"}`, want: "default", lease: 90 * time.Second},
		"no duration": {reason: "nothing is given", raw: `{"lease":null}`, want: "default"},
		"odd text":    {reason: "it names the option", raw: `{"lease":"soon"}`, wantErr: `options.lease: is "soon"; set a duration such as "60s"`},
		"no unit":     {reason: "60 of what?", raw: `{"lease":60}`, wantErr: `options.lease: is 60; set a duration such as "60s"`},
		"no object":   {reason: "options are an object", raw: `["dc1"]`, wantErr: "array"},
		"two objects": {reason: "the second would be ignored", raw: `{} {"datacenter":"dc1"}`, wantErr: "must be one object"},
		"trash":       {reason: "what follows would be ignored", raw: `{} x`, wantErr: "must be one object"},
	}, func(t *testing.T, tc row) {
		got := options{Datacenter: "default"}
		err := driverkit.DecodeOptions(registry.Config{Options: json.RawMessage(tc.raw)}, &got)
		if tc.wantErr == "" {
			if err != nil || got.Datacenter != tc.want || time.Duration(got.Lease) != tc.lease {
				t.Errorf("got %+v, error %v; want %q and %s\nreason: %s", got, err, tc.want, tc.lease, tc.reason)
			}
			return
		}
		field, _ := registry.FieldOf(err)
		if err == nil || !strings.HasPrefix(field, "options") || !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("got error %v of field %q, want one of options with %q\nreason: %s", err, field, tc.wantErr, tc.reason)
		}
	})
}
