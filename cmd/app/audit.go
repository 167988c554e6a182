package app

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// openAudit returns nil if the configuration has no file.
func (a *app) openAudit(lost prometheus.Counter) (*audit.Log, error) {
	c := a.features.Audit
	if c.Path == "" {
		return nil, nil //nolint:nilnil // a nil *audit.Log writes nothing
	}
	host, _ := podName() // only for the reader
	logger, often := a.logger.WithName("audit"), rate.Sometimes{Interval: time.Minute}
	return audit.Open(audit.Options{
		Path: c.Path, MaxSize: c.MaxSize, Name: host, Version: a.options.version,
		Failed: func(lines int, err error) {
			lost.Add(float64(lines))
			often.Do(func() {
				logger.Error(err, "receipts have a gap: lines of the audit log are lost; the metric rollcall_audit_lost_lines_total counts them")
			})
		},
	})
}

// auditRefused identifies the field that is wrong if the log can't be opened.
func auditRefused(file string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: audit.path: set a file on a volume that the manager can write to, such as that of "+
		"config/components/audit: %w", file, err)
}

// audited returns what gives each call to a registry a span, and each change a line of the audit log.
func audited(log *audit.Log, name string, trace registryclient.Trace) registryclient.Trace {
	if log == nil {
		return trace
	}
	operations := map[string]receipt.Op{
		"register": receipt.Register, "failOver": receipt.FailOver, "deregister": receipt.Deregister,
	}
	return func(ctx context.Context, of registryclient.Subject) (context.Context, func(error)) {
		end := func(error) {}
		if trace != nil {
			ctx, end = trace(ctx, of)
		}
		op, changes := operations[of.Operation]
		if !changes {
			return ctx, end
		}
		line := audit.Subject(ctx)
		line.Kind, line.Operation, line.Asked, line.Entry = receipt.Called, op, time.Now(), receipt.EntryOf(name, of.Instance)
		if of.ByApp {
			line.Writer = string(lifecycle.Application)
		}
		return ctx, func(err error) {
			line.Outcome = string(registryclient.Classify(err))
			log.Write(line)
			end(err)
		}
	}
}

// serveAudit answers the kubectl plugin with the whole log.
func serveAudit(log *audit.Log, logger logr.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if log == nil {
			http.Error(w, "the configuration has no audit.path, or this is a dry run, so no receipts are written", http.StatusNotImplemented)
			return
		}
		w.Header().Set("Content-Type", "application/jsonl")
		w.Header().Set("Cache-Control", "no-store")
		if err := log.CopyTo(w); err != nil {
			logger.Error(err, "failed to serve the audit log")
			panic(http.ErrAbortHandler) // else the client would take a part for the whole
		}
	}
}
