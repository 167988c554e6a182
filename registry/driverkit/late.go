package driverkit

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// statusOriginTimeout is the status of a gateway that passed a request on and got no answer.
const statusOriginTimeout = 524 // Cloudflare's

// Late marks the error of a change that was sent and has no answer: the server may still carry it out, so Rollcall waits as after a
// timeout before it relies on the opposite.
func Late(err error) error { return &lateError{err: err} }

// lateError is not a reason to try another server.
type lateError struct{ err error }

func (e *lateError) Error() string { return e.err.Error() }
func (e *lateError) Unwrap() error { return e.err }

// Timeout reports true; see [registry.Registry].
func (*lateError) Timeout() bool { return true }

// mayLand reports whether the server may still carry out what ended in the error.
func mayLand(err error) bool {
	var late interface{ Timeout() bool }
	return errors.As(err, &late) && late.Timeout()
}

// noting sets sent once a request has been written as a whole. If the transport sends a request again, nothing of it was written before.
func noting(ctx context.Context, sent *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { sent.Store(false) },
		WroteRequest: func(info httptrace.WroteRequestInfo) { sent.Store(info.Err == nil) },
	})
}

// isCut reports whether the connection ended before the answer. Anything that is not HTTP, and an alert of TLS, counts as an answer.
func isCut(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	op, is := errors.AsType[*net.OpError](err)
	return is && (op.Op == "read" || op.Op == "write")
}
