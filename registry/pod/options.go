package pod

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Options are the driver's own part of the configuration.
type Options struct {
	// Leave is the request by which the application takes itself out of rotation. Default: required.
	Leave Request `json:"leave"`
	// Join is the request by which the application puts itself back into rotation. Default: required.
	Join Request `json:"join"`
	// State is the request whose answer shows whether the application is in rotation. It must change nothing. Default: required.
	State Request `json:"state"`
	// In is the answer to state while clients are given the application, or a part of it. An answer that matches both counts as in.
	// Default: required.
	In Answer `json:"in"`
	// Out is the answer to state while clients are not given the application. Default: required.
	Out Answer `json:"out"`
	// TokenHeader is the header that carries the token of auth.tokenFile as it is, such as X-Api-Key. Default: Authorization, after Bearer.
	TokenHeader string `json:"tokenHeader"`
	// ServerName is the name that the pods' certificates must be valid for, such as shop.internal. Default: the pod's IP.
	ServerName string `json:"serverName"`
}

// Request is one request to the pod.
type Request struct {
	// Method is GET for state, else POST, unless it is set.
	Method string `json:"method"`
	// Path may have a query.
	Path string `json:"path"`
	// Body is sent as JSON.
	Body string `json:"body"`
}

// Answer is what an answer must be. One of the two is enough.
type Answer struct {
	// Status is any 2xx unless it is set.
	Status int `json:"status"`
	// Body is a regular expression (RE2) that the body contains.
	Body string `json:"body"`
}

const (
	// podIP is what stands for the pod's own IP in the endpoint. Nothing else can: an address that somebody writes could be anyone's.
	podIP  = "{podIP}"
	sample = "http://" + podIP + ":22222"

	maxHeader = 64 // characters of a header's name
)

func decodeOptions(cfg registry.Config) (Options, error) {
	opts := Options{State: Request{Method: http.MethodGet}, Leave: Request{Method: http.MethodPost}, Join: Request{Method: http.MethodPost}}
	problems := []error{
		driverkit.DecodeOptions(cfg, &opts), registry.FieldError("endpoint", checkEndpoint(cfg.Endpoint)),
	}
	switch secure := strings.HasPrefix(cfg.Endpoint, "https://"); {
	case !secure && opts.ServerName != "":
		problems = append(problems,
			registry.FieldError("options.serverName", errors.New("has no effect without https://: remove it, or correct endpoint")))
	case opts.TokenHeader != "" && cfg.Auth.TokenFile == "":
		problems = append(problems,
			registry.FieldError("options.tokenHeader", errors.New("has no effect without auth.tokenFile: set both or none")))
	}
	return opts, errors.Join(append(problems, driverkit.CheckName("options.tokenHeader", opts.TokenHeader, "-_", maxHeader))...)
}

// checkEndpoint takes one scheme, the pod's IP and one port, which so are the only ones that Rollcall calls.
func checkEndpoint(endpoint string) error {
	host, is := "192.0.2.1", strings.Count(endpoint, podIP) == 1
	u, err := url.Parse(strings.Replace(endpoint, podIP, host, 1))
	switch {
	case !is, err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() != host, u.User != nil, u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("is %q: set http or https, %s and the port at which the pods' applications take the requests, such as %s",
			endpoint, podIP, sample)
	case u.Port() == "":
		return fmt.Errorf("is %q: add the port, as in %s", endpoint, sample)
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return fmt.Errorf("has port %s: set one from 1 to 65535", u.Port())
	}
	return nil
}

// urlOf is where a pod is called.
func urlOf(endpoint, address string) (*url.URL, error) {
	if net.ParseIP(address) == nil { // a name would be looked up, and could lead anywhere
		return nil, fmt.Errorf("%q is not an IP", address)
	}
	return url.Parse(strings.Replace(endpoint, podIP, driverkit.InURL(address), 1))
}

// made checks a request of the configuration.
func (r Request) made(field string, changes bool) (driverkit.Request, error) {
	u, err := url.Parse(r.Path)
	switch {
	case r.Path == "":
		return driverkit.Request{}, registry.FieldError(field+".path", errors.New("is required: set a path such as /offline"))
	case err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.Fragment != "":
		return driverkit.Request{}, registry.FieldError(field+".path", fmt.Errorf("is %q: set a path such as /offline", r.Path))
	case !changes && r.Method != http.MethodGet:
		return driverkit.Request{}, registry.FieldError(field+".method", fmt.Errorf("is %q: remove it, state is a GET", r.Method))
	}
	if err := driverkit.OneOf(field+".method", r.Method, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete); err != nil {
		return driverkit.Request{}, err
	}
	made := driverkit.Request{Method: r.Method, Path: u.EscapedPath(), Query: u.Query(), Limit: maxBody, Changes: changes}
	if r.Body != "" {
		made.Body = []byte(r.Body)
	}
	return made, nil
}

// expected is an [Answer] that was checked.
type expected struct {
	status int
	body   *regexp.Regexp
}

func (a Answer) made(field string) (expected, error) {
	switch {
	case a == Answer{}:
		return expected{}, registry.FieldError(field, errors.New("is required: set status, body or both, to tell by the answer to options.state"))
	case a.Status != 0 && (a.Status < 200 || a.Status > 599):
		return expected{}, registry.FieldError(field+".status", fmt.Errorf("is %d: set a status from 200 to 599", a.Status))
	case a.Status >= 300 && a.Body != "":
		return expected{}, registry.FieldError(field+".body", fmt.Errorf("has no effect with status %d: remove one of them", a.Status))
	}
	body, err := regexp.Compile(a.Body)
	return expected{a.Status, body}, registry.FieldError(field+".body", err)
}

func (e expected) is(a *driverkit.Answer) bool {
	if e.status != 0 && a.Status != e.status || e.status == 0 && !a.OK() {
		return false
	}
	return !a.OK() || e.body.Match(a.Body)
}
