package driverkit

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// Addresses splits the endpoint at its commas. An empty endpoint, an empty address and a repeated one are errors of the field
// endpoint.
func Addresses(cfg registry.Config) ([]string, error) {
	if strings.TrimSpace(cfg.Endpoint) == "" {
		return nil, registry.FieldError("endpoint", errors.New("is missing; set the registry's address"))
	}
	var addresses []string
	for a := range strings.SplitSeq(cfg.Endpoint, ",") {
		a = strings.TrimSpace(a)
		switch {
		case a == "":
			return nil, registry.FieldError("endpoint", errors.New("has an empty address between its commas; remove it"))
		case slices.Contains(addresses, a):
			return nil, registry.FieldError("endpoint", errors.New("has one address twice; remove one"))
		}
		addresses = append(addresses, a)
	}
	return addresses, nil
}

// HostPorts returns the addresses of an endpoint of the form host:port,host:port, with IPv6 addresses in brackets.
func HostPorts(cfg registry.Config) ([]string, error) {
	addresses, err := Addresses(cfg)
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil || host == "" || port == "" || !isPort(port) || strings.ContainsAny(host, "@/") {
			return nil, registry.FieldError("endpoint", errors.New(
				"is not made of addresses; use host:port, with commas between several"))
		}
	}
	return addresses, nil
}

// URLs returns the addresses of an endpoint that consists of http or https URLs, which must have only host, port and path: a user
// or password would be shown wherever the endpoint is. All must have the same scheme. TLS files have no effect with http, so they
// are an error too.
func URLs(cfg registry.Config) ([]*url.URL, error) {
	addresses, err := Addresses(cfg)
	if err != nil {
		return nil, err
	}
	urls := make([]*url.URL, 0, len(addresses))
	for _, a := range addresses {
		u, err := parseURL(a)
		if err != nil {
			return nil, registry.FieldError("endpoint", err)
		}
		if len(urls) > 0 && u.Scheme != urls[0].Scheme {
			return nil, registry.FieldError("endpoint", errors.New("has http and https addresses; use the same for all"))
		}
		urls = append(urls, u)
	}
	if urls[0].Scheme == "http" {
		err = ofNoUse(cfg.TLS, "endpoint is not https://; remove it or correct the endpoint")
	}
	return urls, err
}

// ofNoUse returns an error for each file that is set.
func ofNoUse(t registry.TLS, why string) error {
	var problems []error
	for _, f := range []struct{ field, path string }{
		{"tls.caFile", t.CAFile}, {"tls.certFile", t.CertFile}, {"tls.keyFile", t.KeyFile},
	} {
		if f.path != "" {
			problems = append(problems, registry.FieldError(f.field, errors.New("has no effect: "+why)))
		}
	}
	return errors.Join(problems...)
}

func parseURL(text string) (*url.URL, error) {
	const form = "use a URL like https://registry.example.com/base"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// The parser's error can contain a part of a password: to it, http://user:half/other@host has port "half".
		return nil, errors.New("is not a URL; " + form)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://; " + form)
	case u.Hostname() == "":
		return nil, errors.New("has no host; " + form)
	case !isPort(u.Port()):
		return nil, errors.New("must have a port from 1 to 65535")
	case u.User != nil:
		return nil, errors.New("must not have a user or password; set the fields of auth")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("must not have a query; " + form)
	case u.Fragment != "":
		return nil, errors.New("must not have a fragment; " + form)
	}
	return u, nil
}

// isPort is also true for an empty port: the scheme has a default.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}
