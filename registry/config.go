package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"
)

// Constructor makes a driver. Every replica of the manager calls it at start-up, also one that does not lead, and again
// when the registry's configuration or the content of a file that it names has changed: a driver reads its files here and
// nowhere else. It checks all that can be checked without the registry: an unknown option, a bad URL or a missing file is
// an error that names the field as the user wrote it (see [FieldError]). It does not need the registry to be reachable. ctx
// bounds the making alone: what the driver begins goes on until it is closed.
//
// A Registry that is also an io.Closer is closed, once, when it is no longer used and no call is under way. Close frees what
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
	// TLS and Auth name files, which exist or not. A driver refuses what it would ignore.
	TLS  TLS
	Auth Auth
	// Timeout is how long one call may take. The caller bounds the context of each call by it, and that of a list by six
	// times as much; a driver may use it for what a context can't bound.
	Timeout time.Duration
	// Options is the driver's own part, as a JSON object; package driverkit decodes it.
	Options json.RawMessage
	// Logger is for what no call can return as its error: which server is used now, that a session was lost. It names the
	// registry already. Rollcall sets it always; for a test that does not there is Logger in package driverkit. Calls that
	// fail are logged by the caller.
	Logger *slog.Logger
	// Outgoing, unless it is nil, is to be called before each request is sent, with the request's context and the server, nil if
	// that is not known. It returns the headers by which the server finds the trace that the request is part of. The HTTP client of
	// package driverkit calls it.
	Outgoing func(ctx context.Context, server *url.URL) (headers map[string]string)
}

// TLS says how the registry proves who it is, and how we prove who we are.
type TLS struct {
	// CAFile is a PEM file with the authorities to trust; empty means the system's.
	CAFile string
	// CertFile and KeyFile are PEM files with our certificate and its key, for a registry that asks for one. Both or
	// neither.
	CertFile string
	KeyFile  string
}

// Given reports whether any file is named, for a registry that knows no TLS.
func (t TLS) Given() bool { return t != TLS{} }

// Auth says who we are to the registry.
type Auth struct {
	// TokenFile holds a token; surrounding white space is ignored.
	TokenFile string
	// Username is sent with the password in PasswordFile; a line break at the end of the file is ignored.
	Username     string
	PasswordFile string
}

// FieldError says which field of the registry section is wrong: "endpoint", "tls.caFile", "options.datacenter". The
// configuration's validation puts the section's own path before it. FieldError(field, nil) is nil.
func FieldError(field string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{field: field, err: err}
}

// FieldOf returns the field that [FieldError] named in err, or in an error that it wraps.
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
