package eureka

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// errNothing takes a look on to the next peer.
var errNothing = errors.New("this peer has no entry")

// elsewhere explains a 404 or 405 that Eureka never sends: it is not Eureka that answers. Another peer may be one.
func elsewhere(err error) error {
	hint := "its path must be that of Eureka, such as /eureka or /eureka/v2"
	switch {
	case driverkit.HasStatus(err, http.StatusMethodNotAllowed):
		hint = "it is not Eureka; if it is Polaris, whose reads lag behind its acknowledgements, use driver: pod"
	case !driverkit.HasStatus(err, http.StatusNotFound):
		return err
	}
	return driverkit.Away(registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("%w; %s", err, hint))))
}

// gone explains a 404 for an entry that was there a moment ago. Trying again helps.
func gone(err error) error {
	if !driverkit.HasStatus(err, http.StatusNotFound) {
		return err
	}
	return fmt.Errorf("the entry disappeared during the call: %v", err) //nolint:errorlint // its class is that of the status
}

// refusal gives its class to an answer that is not an acknowledgement.
func (r *Registry) refusal(method string, a *driverkit.Answer) error {
	err := a.Refusal(string(a.Body)).Classified()
	switch a.Status {
	case http.StatusUnauthorized:
		return registry.FieldError(r.field, err)
	case http.StatusForbidden:
		return forbidden(method, err)
	}
	return err
}

// forbidden knows two reasons that are hard to guess. One passes: Netflix's own server gives out no listing for the first
// minutes after a start in which it found no peer (waitTimeInMsWhenSyncEmpty).
func forbidden(method string, err error) error {
	if method == http.MethodGet || method == http.MethodHead {
		return fmt.Errorf("%v; a server that has just started answers so until it has found its peers", err) //nolint:errorlint // it passes
	}
	return fmt.Errorf("%w; the user may lack a role; if the server has Spring Security, "+
		"its CSRF protection must be off for Eureka's paths", err)
}
