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

// Constructor makes a driver. Every replica of the manager calls it at the start, even one that does not lead, and again
// when the registry's configuration or the content of one of its files has changed: a driver reads its files here and
// nowhere else. It checks everything that can be checked without the registry: an unknown option, a bad URL or a missing file is
// an error with the field as the user wrote it (see [FieldError]), and several are joined by [errors.Join]: a person corrects them in one
// go. The registry can be unreachable. ctx bounds only the constructor: what the driver starts continues until it is closed.
//
// A Registry that is also an io.Closer is closed once, when it is no longer used and no call is under way. Close frees what
// this process holds and leaves every entry as it is, even entries with a lease or a session: the next process takes them over
// before these expire.
type Constructor func(ctx context.Context, cfg Config) (Registry, error)

// Config is the section of one registry in Rollcall's configuration, as a driver gets it.
type Config struct {
	// Cluster is the owner that this process writes into its ownership tags.
	Cluster string
	// Endpoint is where the registry is: one address, or several separated by commas, in the driver's own form. Empty
	// if the driver needs none.
	Endpoint string
	// TLS and Auth have the paths of files, which may not exist. A driver refuses what it would ignore.
	TLS  TLS
	Auth Auth
	// Timeout is how long one call may take. The caller bounds the context of each call by it, and that of a list by six
	// times as much; a driver may use it for what a context can't bound.
	Timeout time.Duration
	// Takeover bounds the time without a leader when one has died; zero means 20 s. See LeastLease.
	Takeover time.Duration
	// Options is the driver's own part, as a JSON object; package driverkit decodes it.
	Options json.RawMessage
	// Logger is for what no call can return as its error: which server is used now, or that a session was lost. It already has
	// the registry's name. Rollcall always sets it; a test that does not can use Logger of package driverkit. The caller logs
	// calls that fail.
	Logger *slog.Logger
	// Outgoing, unless it is nil, must be called before each request is sent, with the request's context and the server, nil if
	// that is not known. It returns the headers that connect the request with its trace. The HTTP client of package driverkit
	// calls it.
	Outgoing func(ctx context.Context, server *url.URL) (headers map[string]string)
}

// TLS configures how the registry and Rollcall prove who they are.
type TLS struct {
	// CAFile is a PEM file with the authorities to trust; empty means the system's.
	CAFile string
	// CertFile and KeyFile are PEM files with Rollcall's certificate and its key, for a registry that requires one. Both or
	// neither are set.
	CertFile string
	KeyFile  string
}

// Given reports whether any file is set, for a registry without TLS.
func (t TLS) Given() bool { return t != TLS{} }

// Auth has Rollcall's credentials for the registry.
type Auth struct {
	// TokenFile holds a token; surrounding white space is ignored.
	TokenFile string
	// Username is sent with the password in PasswordFile; a line break at the end of the file is ignored.
	Username     string
	PasswordFile string
}

// FieldError adds which field of the registry section is wrong: "endpoint", "tls.caFile", "options.datacenter". The
// validation of the configuration puts the section's own path before it. FieldError(field, nil) is nil.
func FieldError(field string, err error) error {
	if err == nil {
		return nil
	}
	return &fieldError{field: field, err: err}
}

// FieldOf returns the field that [FieldError] put on err, or on an error that it wraps.
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
