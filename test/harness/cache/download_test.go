package cache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestDownload is not parallel: it sets where the cache is.
func TestDownload(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const content = "what a jar holds"
	sum := sha256.Sum256([]byte(content))
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		switch r.URL.Path {
		case "/whole":
			_, _ = w.Write([]byte(content))
		case "/cut":
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(content))
		case "/silent":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	file := File{Name: "a.jar", URL: server.URL + "/whole", SHA256: hex.EncodeToString(sum[:])}
	var log strings.Builder
	progress := NewProgress(&log, "test")

	for _, wrong := range []struct {
		reason, path, sum, err string
	}{
		{"another file is not the one that is pinned", "/whole", strings.Repeat("0", 64), "is pinned"},
		{"what is not there says so", "/absent", file.SHA256, "404"},
		{"half a file is none", "/cut", file.SHA256, "unexpected EOF"},
		{"a pin that is none is named", "/whole", "1234", "not a SHA-256"},
	} {
		f := File{Name: "a.jar", URL: server.URL + wrong.path, SHA256: wrong.sum}
		_, err := Download(t.Context(), progress, f)
		expect.Error(t, wrong.reason, err, wrong.err)
		expect.Error(t, "the error names the file", err, "downloading a.jar from "+server.URL)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Download(cancelled, NewProgress(nil, ""), File{Name: "a.jar", URL: server.URL + "/silent", SHA256: file.SHA256})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a download that was cancelled: got %v", err)
	}
	if left := leftIn(t, filepath.Join(os.Getenv("XDG_CACHE_HOME"), "rollcall", "downloads")); len(left) > 0 {
		t.Errorf("after failures the cache holds %v, want nothing", left)
	}

	requests.Store(0)
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			path, err := Download(t.Context(), progress, file)
			if got, _ := os.ReadFile(path); err != nil || string(got) != content || filepath.Base(path) != "a.jar" {
				t.Errorf("the download gives %s with %q and error %v", path, got, err)
			}
		})
	}
	all.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("five who want the file at the same time asked %d times for it", n)
	}
	if !strings.Contains(log.String(), "test: downloaded a.jar") {
		t.Errorf("the progress does not name the file:\n%s", log.String())
	}
}

// leftIn returns the files below a folder that are not locks.
func leftIn(t *testing.T, dir string) []string {
	t.Helper()
	var left []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) != ".lock" {
			left = append(left, path)
		}
		return err
	})
	expect.NoError(t, err)
	return left
}
