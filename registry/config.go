package registry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// Constructor makes a driver. It is called at start-up, and again when the registry's configuration or the content of a
// file that it names has changed: a driver reads its files here and nowhere else. It checks all that can be checked
// without the registry: an unknown option, a bad URL or a missing file is an error that names the field as the user wrote
// it (see [FieldError]). It does not need the registry to be reachable.
//
// A Registry that is also an io.Closer is closed when it is no longer used and no call is under way. Close frees what
// this process holds and leaves every entry as it is, those that live by a lease or a session too: whoever comes next has
// until these end to take them over.
type Constructor func(ctx context.Context, cfg Config) (Registry, error)

// Config is the section of one registry in Rollcall's configuration, as a driver gets it.
type Config struct {
	// Cluster is the owner that this process writes into its marks.
	Cluster string
	// Endpoint is where the registry is: one address, or several separated by commas, in the driver's own form. Empty
	// where the driver needs none.
	Endpoint string
	TLS      TLS
	Auth     Auth
	// Timeout is how long one call may take. The caller bounds each call's context by it; a driver may use it for what
	// a context can't bound.
	Timeout time.Duration
	// Options is the driver's own part, as a JSON object; decode it with [Config.DecodeOptions].
	Options json.RawMessage
}

// DecodeOptions decodes the driver's options into a struct, strictly: an option that the struct has no field for is an
// error that names it. Nothing given leaves the struct as it is, so set defaults before the call.
func (c Config) DecodeOptions(into any) error {
	if len(bytes.TrimSpace(c.Options)) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(c.Options))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return optionError(err, into)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return FieldError("options", errors.New("must be one object"))
	}
	return nil
}

// optionError says in the user's words what the decoder says in Go's.
func optionError(err error, into any) error {
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field != "" {
		return FieldError("options."+wrong.Field, fmt.Errorf("must be of type %s, and is a JSON %s", wrong.Type, wrong.Value))
	}
	// Package json has no type for it.
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return FieldError("options", fmt.Errorf("unknown field %s; known here: %s", name, cmp.Or(optionsOf(into), "none")))
	}
	return FieldError("options", err)
}

// optionsOf lists the names of a struct's fields.
func optionsOf(into any) string {
	t := reflect.TypeOf(into)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return ""
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name = cmp.Or(name, f.Name); f.IsExported() && !f.Anonymous && name != "-" {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// FieldError says which field of the registry section is wrong: "endpoint", "tls.caFile", "options.datacenter". The
// configuration's validation puts the section's own path before it.
func FieldError(field string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{field: field, err: err}
}

// FieldOf returns the field that [FieldError] named.
func FieldOf(err error) (string, bool) {
	var f *fieldError
	if !errors.As(err, &f) {
		return "", false
	}
	return f.field, true
}

type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return fmt.Sprintf("%s: %s", e.field, e.err) }
func (e *fieldError) Unwrap() error { return e.err }
