package app

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestFalseTokensCostFewReviews: who knows no token has a small part of what the API server gives Rollcall.
func TestFalseTokensCostFewReviews(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		token  func(i int) string
		from   func(i int) string
		most   int
	}
	expect.Each(t, map[string]row{
		"one token":                  {"its refusal is remembered", func(int) string { return "false" }, func(int) string { return "10.0.0.1:1" }, 1},
		"many tokens of one address": {"they are too many to ask about", func(i int) string { return fmt.Sprint("false-", i) }, func(i int) string { return fmt.Sprint("10.0.0.1:", i) }, reviewBurst},
		"a token that is too long":   {"no token is", func(i int) string { return strings.Repeat("x", maxToken+1+i) }, func(int) string { return "10.0.0.1:1" }, 0},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			r := &reviews{}
			s := r.readers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a stranger is let through") }))
			for i := range 1000 {
				request := asks(t, "/metrics")
				request.RemoteAddr = tc.from(i)
				request.Header.Set("Authorization", "Bearer "+tc.token(i))
				w := httptest.NewRecorder()
				s.ServeHTTP(w, request)
				if w.Code != http.StatusUnauthorized && w.Code != http.StatusTooManyRequests {
					t.Fatalf("got %d", w.Code)
				}
			}
			if r.made > tc.most {
				t.Errorf("the API server was asked %d times, want at most %d: %s", r.made, tc.most, tc.reason)
			}
			t.Log("The right comes, and is found soon.")
			r.allowed, r.authenticated = true, true
			time.Sleep(refusalLasts)
			synctest.Wait()
			admitted := false
			s.next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { admitted = true })
			request := asks(t, "/metrics")
			request.RemoteAddr = "10.0.0.1:1"
			s.ServeHTTP(httptest.NewRecorder(), request)
			if !admitted {
				t.Error("a reader with the right is refused")
			}
		})
	})
}

// TestSlowReaderIsEnded: a reader who takes nothing keeps neither the answer in memory nor its place, and one who stays is not ended.
func TestSlowReaderIsEnded(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	handler := withDeadlines(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		data := make([]byte, 1<<20)
		for {
			if _, err := w.Write(data); err != nil {
				ended <- err
				return
			}
		}
	}))
	server := httptest.NewServer(handler)
	defer server.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	expect.NoError(t, err)
	defer conn.Close()
	_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(10 * readerTimeout):
		t.Error("the answer to a reader who takes nothing does not end")
	}
}

// TestStreamOutlivesTheDeadline: with HTTP/2, a deadline that passes between two writes would reset the stream.
func TestStreamOutlivesTheDeadline(t *testing.T) {
	t.Parallel()
	cleared := make(chan bool, 10)
	w := &punctual{ResponseWriter: &deadlines{ResponseWriter: httptest.NewRecorder(), cleared: cleared}}
	w.control = http.NewResponseController(w.ResponseWriter)
	if _, err := w.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if set, none := <-cleared, <-cleared; set || !none {
		t.Error("a deadline is left between two writes")
	}
}

type deadlines struct {
	http.ResponseWriter

	cleared chan bool
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.cleared <- at.IsZero()
	return nil
}

func TestReadersAtATime(t *testing.T) {
	t.Parallel()
	stays, leave := make(chan struct{}), make(chan struct{})
	handler := atMost(1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(stays); <-leave }))
	go handler.ServeHTTP(httptest.NewRecorder(), asks(t, "/metrics"))
	<-stays
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, asks(t, "/metrics"))
	close(leave)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("got %d, want the reader to come again", w.Code)
	}
}
