package nacos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// verdict is what follows from an answer that is not an acknowledgement.
type verdict int

const (
	failed    verdict = iota // try again later
	elsewhere                // another address may do better
	refused                  // who we are is not accepted, or may not do this
	noRoute                  // the server has no such path: it is of another version, or not Nacos
	absent                   // there is no such instance
	noService                // there is no such service
	exists                   // the service is there already
	unfit                    // it stays wrong however often it is tried
	wrongKind                // this server has the service as of the other kind: ephemeral, not persistent, or the other way round
)

// answerError is an answer that is not an acknowledgement.
type answerError struct {
	verdict verdict
	err     error
}

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

func verdictOf(err error) verdict {
	if e, ok := errors.AsType[*answerError](err); ok {
		return e.verdict
	}
	return failed
}

// isNone holds for a server's word that there is no such instance, or no such service.
func isNone(err error) bool {
	verdict := verdictOf(err)
	return verdict == absent || verdict == noService
}

// judge returns what an answer means. Nacos' status tells only half: v1 has no codes, and versions before 2.4 answer 500, and
// later ones 400. So its words count too, as nacos-naming has them.
func judge(status, code int, said string) verdict {
	for _, known := range []struct {
		code  int // of com.alibaba.nacos.api.model.v2.ErrorCode
		words string
		means verdict
	}{
		{words: "is ephemeral service, can't", means: wrongKind},
		{words: "is persistent service, can't", means: wrongKind},
		{words: "no ips found for cluster", means: absent},
		{words: "no matched ip found", means: absent},
		{words: " is not found!", means: absent},
		{code: 20004, means: absent},
		{code: 21003, means: absent},
		{words: "already exists", means: exists},
		{code: 21007, means: exists},
		{words: "service not found", means: noService},
		{code: 21008, means: noService},
	} {
		if code != 0 && code == known.code || known.words != "" && strings.Contains(said, known.words) {
			return known.means
		}
	}
	return judgeStatus(status)
}

func judgeStatus(status int) verdict {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return refused
	case status == http.StatusNotFound, status == http.StatusGone, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return noRoute // each of them from one or the other version of Nacos
	case status >= http.StatusInternalServerError:
		return elsewhere
	case driverkit.IsFinal(status):
		return unfit
	}
	return failed
}

// newAnswerError makes an error of an answer. What one server refuses another may take: one that has started out of step with the others
// holds a persistent service for an ephemeral one, and one may be of another version, or no Nacos. A change may still be under way
// after a gateway's answer, so no other address is asked then.
func newAnswerError(a *driverkit.Answer) error {
	code, said := message(a.Body)
	refusal := a.Refusal(said)
	e := &answerError{verdict: judge(a.Status, code, said), err: refusal}
	switch e.verdict {
	case unfit, wrongKind:
		return driverkit.Away(registry.Terminal(e))
	case noRoute:
		return driverkit.Away(e)
	case elsewhere:
		if !refusal.Timeout() {
			return driverkit.Away(e)
		}
	default: // all servers would say the same
	}
	return e
}

// message returns the code and the words of an answer: of the envelope, of the page that the server's framework makes, or
// else the text as it is.
func message(body []byte) (code int, said string) {
	var page struct {
		envelope
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &page) != nil {
		return 0, string(body)
	}
	said = page.Message
	var more string
	if json.Unmarshal(page.Data, &more) == nil && more != "" {
		said += ": " + more
	}
	if page.Code != nil {
		code = *page.Code
	}
	return code, said
}

// classified gives an error the class that its caller sees.
func classified(in registry.Instance, opts Options, err error) error {
	e, ok := errors.AsType[*answerError](err)
	if !ok {
		return err
	}
	switch e.verdict {
	case wrongKind:
		return registry.FieldError("options.ephemeral", wrongKindError(in, opts, err))
	case noRoute:
		err = noRouteError(opts, err)
	default: // passing, or dealt with where it came up
	}
	if said, is := errors.AsType[*driverkit.StatusError](err); is && registry.CodeOf(err) != registry.CodeTerminal {
		if after, delayed := said.RetryAfter(); delayed {
			return registry.RetryAfter(err, after)
		}
	}
	return err
}

func noRouteError(opts Options, err error) error {
	if opts.APIVersion != "" {
		return registry.FieldError("options.apiVersion", fmt.Errorf(
			"is %s, and the server has no such API (Nacos 3.2 and newer have v3 alone): leave it out to use what the server has: %w",
			opts.APIVersion, err))
	}
	return registry.FieldError("endpoint", fmt.Errorf(
		"the server has neither API v3 nor an older one: check that the port is the API's (8848, not the console's), "+
			"and the path Nacos' context path, /nacos by default: %w", err))
}

// wrongKindError also covers a server that is wrong itself: at its start it reads the metadata of instances and the instances from
// different Rafts, and makes an ephemeral service of metadata that comes first (InstanceMetadataProcessor.updateInstanceMetadata).
func wrongKindError(in registry.Instance, opts Options, err error) error {
	has, wants := "ephemeral", "persistent"
	or := "; or, if all its instances are persistent, restart the Nacos servers that refuse: each misread them when it started"
	if opts.Ephemeral {
		has, wants, or = wants, has, ""
	}
	return fmt.Errorf("service %s has %s instances, and Nacos accepts no %s ones next to them (alibaba/nacos#10920): set it to "+
		"%t, or use another service name or group, or empty the service and wait until Nacos has removed it%s: %w",
		in.Service, has, wants, !opts.Ephemeral, or, err)
}
