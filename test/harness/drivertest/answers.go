package drivertest

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// Refused expects a terminal error with these words in it, of the field, or of none if that is empty.
func Refused(t expect.T, reason string, err error, field, words string) {
	t.Helper()
	got, _ := registry.FieldOf(err)
	if registry.CodeOf(err) != registry.CodeTerminal || got != field || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: got error %v of field %q, want a terminal one of %q with %q", reason, err, got, field, words)
	}
}

// Passes expects an error that is tried again, with these words in it.
func Passes(t expect.T, reason string, err error, words string) {
	t.Helper()
	code := registry.CodeOf(err)
	if err == nil || code == registry.CodeTerminal || code == registry.CodeNotRegistered || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: got error %v of class %q, want one that passes with %q", reason, err, code, words)
	}
}

// MayLand reports whether the error is of a change that may still be made.
func MayLand(err error) bool {
	var late interface{ Timeout() bool }
	return errors.As(err, &late) && late.Timeout()
}

// Says expects a state of a registry's Get, or of that of its applications' entries.
func Says(t testing.TB, reason string, of registry.Getter, in registry.Instance, want registry.State) {
	t.Helper()
	got, err := of.Get(t.Context(), in)
	if err != nil || got != want {
		t.Errorf("%s: Get: got %q and error %v, want %q", reason, got, err, want)
	}
}

// Answer is one that a server gives to everything, and that acknowledges nothing.
type Answer struct {
	Reason string
	Status int
	Body   string
	// Final: trying again is of no use.
	Final bool
	// Field is the one that a person has to correct, if any.
	Field string
}

// Answers makes every call at a server that gives one answer to everything. The answers are the ones that mean the same to all drivers of
// registries that speak HTTP, and the driver's own. A body that is not the registry's acknowledges nothing, whatever the status; which
// class its error has is tested by registrytest.
func Answers(t *testing.T, open func(t *testing.T, endpoint string) registry.Registry, own map[string]Answer) {
	t.Helper()
	rows := map[string]Answer{}
	for name, body := range map[string]string{
		"nothing": "", "a page": "<html>log in</html>", "null": "null", "an empty object": "{}", "two objects": "{}{}",
		"other JSON": `{"status":"ok"}`, "half of it": `{"instance": {"ip": "10.0`,
	} {
		rows[name] = Answer{Reason: "it is not the registry's", Status: http.StatusOK, Body: body}
	}
	for _, status := range []int{302, 400, 413} {
		rows[strconv.Itoa(status)] = Answer{Reason: "it stays so", Status: status, Final: true}
	}
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504, 599} {
		rows[strconv.Itoa(status)] = Answer{Reason: "it is a matter of time", Status: status}
	}
	maps.Copy(rows, own)
	expect.Each(t, rows, func(t *testing.T, tc Answer) {
		d := open(t, Answering(t, tc.Status, map[string]string{"Location": "http://elsewhere.invalid/"}, tc.Body))
		calls := Calls(t.Context(), d, Pod(1))
		if probing, is := d.(registry.Prober); is {
			calls["Probe"] = probing.Probe(t.Context(), Pod(1))
		}
		for name, err := range calls {
			tc.expect(t, name, err)
		}
	})
}

func (a Answer) expect(t *testing.T, call string, err error) {
	t.Helper()
	switch {
	case a.Status < http.StatusMultipleChoices:
		if err == nil || registry.CodeOf(err) == registry.CodeNotRegistered {
			t.Errorf("%s: got error %v, want one that says nothing of the instance: %s", call, err, a.Reason)
		}
	case a.Final:
		Refused(t, call+": "+a.Reason, err, a.Field, "")
	default:
		Passes(t, call+": "+a.Reason, err, "")
	}
	if MayLand(err) && a.Status != http.StatusBadGateway && a.Status != http.StatusGatewayTimeout {
		t.Errorf("%s: got error %v of a change that may still be made: the server has answered", call, err)
	}
}
