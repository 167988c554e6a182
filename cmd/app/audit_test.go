package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPartOfTheAuditLogIsNotServedAsTheWhole has the log's present file be unreadable, after the file before it.
func TestPartOfTheAuditLogIsNotServedAsTheWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(audit.Options{Path: path, MaxSize: 1, Name: "m", Version: "v1", Failed: func(int, error) {}})
	expect.NoError(t, err)
	for range 3 {
		log.Write(receipt.Line{Kind: receipt.Flip})
	}
	expect.NoError(t, log.Close(t.Context(), true))
	server := httptest.NewServer(serveAudit(log, logr.Discard()))
	t.Cleanup(server.Close)
	get := func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		expect.NoError(t, err)
		response, err := server.Client().Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.ReadAll(response.Body)
		return err
	}
	expect.NoError(t, get())
	expect.NoError(t, os.Remove(path))
	expect.NoError(t, os.Mkdir(path, 0o700))
	if err := get(); err == nil {
		t.Error("the client can't see that lines are missing")
	}
}
