package driverkit

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// FuzzAnswers: whatever stands behind the endpoint, and whatever it answers, a request is acknowledged only by a status that
// says so, and fails with an error of the class that the status asks for.
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
	f.Fuzz(func(t *testing.T, raw []byte) {
		server := &answers{raw: raw}
		c := clientOver(t, server)
		c.mask = Credentials{Token: token}.mask()
		for _, r := range []Request{{Method: http.MethodPost}, {Method: http.MethodGet, Limit: 1 << 20}} {
			a, err := c.Do(t.Context(), r)
			if err == nil && !a.OK() {
				err = a.Refusal(string(a.Body)).Classified()
			}
			if err == nil && !server.acknowledges() || err != nil && server.acknowledges() && r.Limit == 0 {
				t.Errorf("%s gave %v for status %d", r.Method, err, server.status)
			}
			server.expectClass(t, err)
			if err != nil && strings.Contains(err.Error(), token) {
				t.Errorf("%s shows the token: %v", r.Method, err)
			}
		}
	})
}

// BenchmarkDo has a server that acknowledges every request at once, so that only the client is measured.
func BenchmarkDo(b *testing.B) {
	c := clientOver(b, acknowledging{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Do(b.Context(), Request{Method: http.MethodPost, Path: "/v1/register", Body: []byte("{}")}); err != nil {
			b.Fatal(err)
		}
	}
}

// clientOver is a client with this in the network's place.
func clientOver(t testing.TB, network http.RoundTripper) *HTTPClient {
	t.Helper()
	c, err := NewHTTPClient(registry.Config{Endpoint: "http://registry.example.com:8080/base"}, HTTPOptions{Name: "the registry"})
	expect.NoError(t, err)
	c.transport = network
	return c
}

type acknowledging struct{}

func (acknowledging) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, r.Body.Close()
}

// answers is a server that gives the same bytes to every request.
type answers struct {
	raw []byte
	// status is that of the last answer; 0 where the bytes are none.
	status int
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

// expectClass holds an error against the table of the HTTP registry protocol.
func (a *answers) expectClass(t *testing.T, err error) {
	t.Helper()
	terminal := a.status >= 300 && a.status <= 499
	for _, passes := range []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests} {
		terminal = terminal && a.status != passes
	}
	if (registry.CodeOf(err) == registry.CodeTerminal) != terminal {
		t.Errorf("status %d gave %v: terminal is %t, want %t", a.status, err, !terminal, terminal)
	}
	if after, said := registry.RetryAfterOf(err); said && (terminal || after < 0 || after > time.Hour) {
		t.Errorf("status %d has the caller come back after %s", a.status, after)
	}
}
