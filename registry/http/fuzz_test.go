package httpregistry

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// FuzzAnswers: whatever stands behind the endpoint, and whatever it answers, a call succeeds only with a status that
// acknowledges it, and fails with an error of the class that the status asks for.
func FuzzAnswers(f *testing.F) {
	const token = "s3cr3t-t0k3n"
	for _, seed := range []string{
		"", "garbage", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 299\r\n\r\n", "HTTP/1.1 000 x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"instances\": []}", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"instances\"",
		"HTTP/1.1 200 OK\r\n\r\n{\"instances\": [{\"cluster\":\"prod-1\",\"state\":\"InService\",\"port\":80}]}",
		"HTTP/1.1 200 OK\r\n\r\n{\"instances\": [{\"cluster\":\"prod-1\",\"state\":\"Absent\"}]}", "HTTP/1.1 200 OK\r\n\r\n{\"instances\": null}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n", "HTTP/1.1 302 Found\r\nLocation: http://\x7f/" + token + "\r\n\r\n",
		"HTTP/1.1 401 \r\n\r\n{\"error\": \"wrong token " + token + "\"}", "HTTP/1.1 404 Not Found\r\n\r\n<html>", "HTTP/1.1 409 Conflict\r\n\r\n",
		"HTTP/1.1 429 \r\nRetry-After: 4294967295\r\n\r\n", "HTTP/1.1 503 \r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n\r\n",
		"HTTP/1.1 503 \r\nRetry-After: -1\r\n\r\n\xff\xfe", "HTTP/1.1 999 \r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		server := &answers{raw: raw}
		reg := server.Registry(t, path)
		in := registry.Instance{
			Service: "web", Address: "10.0.0.1", Port: 80, Cluster: "prod-1", Namespace: "shop", Pod: "web-1", UID: "1",
		}
		for name, call := range map[string]error{
			"Register": reg.Register(t.Context(), in), "FailOver": reg.FailOver(t.Context(), in), "Deregister": reg.Deregister(t.Context(), in),
		} {
			if (call == nil) != server.acknowledges() {
				t.Errorf("%s gave %v for status %d", name, call, server.status)
			}
			server.ExpectClass(t, call)
			if call != nil && strings.Contains(call.Error(), token) {
				t.Errorf("%s shows the token: %v", name, call)
			}
		}
		entries, err := reg.List(t.Context(), "prod-1")
		if err == nil && !server.acknowledges() || err != nil && entries != nil {
			t.Errorf("List gave %+v and %v for status %d", entries, err, server.status)
		}
		for _, e := range entries {
			if e.Cluster != "prod-1" || e.State != registry.InService && e.State != registry.OutOfService {
				t.Errorf("List gave %+v", e)
			}
		}
	})
}

// answers is a server that gives the same bytes to every request.
type answers struct {
	raw []byte
	// status is that of the last answer; 0 where the bytes are none.
	status int
}

func (a *answers) Registry(t *testing.T, tokenFile string) *Registry {
	t.Helper()
	made, err := newRegistry(registry.Config{
		Cluster: "prod-1", Endpoint: "http://127.0.0.1:1", Timeout: time.Minute, Auth: registry.Auth{TokenFile: tokenFile},
	}, a)
	expect.NoError(t, err)
	reg, ok := made.(*Registry)
	if !ok {
		t.Fatalf("New made a %T", made)
	}
	return reg
}

// RoundTrip implements http.RoundTripper. What net/http does not take for a final answer is an error there as well.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.status = 0
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(a.raw)), r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < http.StatusOK {
		return nil, errors.Join(errors.New("no final answer came"), response.Body.Close())
	}
	a.status = response.StatusCode
	return response, nil
}

func (a *answers) acknowledges() bool { return a.status >= 200 && a.status <= 299 }

// ExpectClass holds an error against the document's table.
func (a *answers) ExpectClass(t *testing.T, err error) {
	t.Helper()
	terminal := a.status >= 300 && a.status <= 499
	for _, passes := range []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests} {
		terminal = terminal && a.status != passes
	}
	if registry.IsTerminal(err) != terminal {
		t.Errorf("status %d gave %v: terminal is %t, want %t", a.status, err, !terminal, terminal)
	}
	if after, said := registry.RetryAfterOf(err); said && (terminal || after < 0 || after > time.Hour) {
		t.Errorf("status %d has the caller come back after %s", a.status, after)
	}
}
