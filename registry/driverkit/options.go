package driverkit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// DecodeOptions decodes the driver's options into a struct, strictly: an option for which the struct has no field is an error with
// its name. Options that are not set, or wrong, leave the struct as it is, so set defaults before the call. The error joins those of all
// options.
func DecodeOptions(cfg registry.Config, into any) error {
	if len(bytes.TrimSpace(cfg.Options)) == 0 {
		return nil
	}
	err := decodeOptions(cfg.Options, into)
	var each map[string]json.RawMessage
	if err == nil || json.Unmarshal(cfg.Options, &each) != nil {
		return err
	}
	var problems []error // the decoder stops at the first one
	for _, name := range slices.Sorted(maps.Keys(each)) {
		one, _ := json.Marshal(map[string]json.RawMessage{name: each[name]}) // which was read as such
		problems = append(problems, decodeOptions(one, into))
	}
	return cmp.Or(errors.Join(problems...), err)
}

func decodeOptions(options json.RawMessage, into any) error {
	dec := json.NewDecoder(bytes.NewReader(options))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return optionError(err, into)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return registry.FieldError("options", errors.New("must be one object"))
	}
	return nil
}

// Duration is an option that is written as Go writes one: 60s, 1m30s.
type Duration time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (d *Duration) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" { // an option without a value is allowed for any type
		return nil
	}
	var text string
	_ = json.Unmarshal(raw, &text) // if it is not a text, it is not a duration
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return &json.UnmarshalTypeError{Value: string(raw), Type: reflect.TypeFor[Duration]()} // to which json adds the field
	}
	*d = Duration(parsed)
	return nil
}

// optionError translates the decoder's error from Go's words into the user's.
func optionError(err error, into any) error {
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is && wrong.Field != "" {
		says := fmt.Errorf("must be of type %s, got JSON %s", wrong.Type, wrong.Value)
		if wrong.Type == reflect.TypeFor[Duration]() {
			says = fmt.Errorf("is %s; set a duration such as \"60s\"", wrong.Value)
		}
		return registry.FieldError("options."+wrong.Field, says)
	}
	// Package json has no type for it.
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return registry.FieldError("options",
			fmt.Errorf("unknown field %s; known here: %s", name, cmp.Or(optionsOf(into), "none")))
	}
	return registry.FieldError("options", err)
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

// CheckName returns an error of the field if its value has characters other than ASCII letters, digits and those of more, or more
// characters than longest. An empty value is allowed.
func CheckName(field, value, more string, longest int) error {
	allowed := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(more, c)
	}
	switch {
	case len(value) > longest:
		return registry.FieldError(field, fmt.Errorf("has %d characters; %d are allowed", len(value), longest))
	case strings.ContainsFunc(value, func(c rune) bool { return !allowed(c) }):
		return registry.FieldError(field, fmt.Errorf("may have letters, digits and %s only", more))
	}
	return nil
}

// OneOf returns an error of the field if its value is not one of those allowed, which the error lists. Allow "" if the field can be
// left out.
func OneOf(field, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	allowed = slices.DeleteFunc(slices.Clone(allowed), func(a string) bool { return a == "" })
	return registry.FieldError(field, fmt.Errorf("is %q; use one of %s", value, strings.Join(allowed, ", ")))
}

// Logger returns the configuration's logger, or one that discards everything if a test has set none.
func Logger(cfg registry.Config) *slog.Logger {
	if cfg.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return cfg.Logger
}
