package httpregistry

import (
	"encoding/json"
	"net/http"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// refusal makes an error of an answer that is not an acknowledgement.
func (r *Registry) refusal(a *driverkit.Answer) error {
	err := a.Refusal(words(a.Body)).Classified()
	if a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden {
		return registry.Terminal(registry.FieldError(r.field, err))
	}
	return err
}

// words are the server's explanation, from {"error": …} or else the text as it is.
func words(body []byte) string {
	var problem struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &problem) == nil && problem.Error != "" {
		return problem.Error
	}
	return string(body)
}
