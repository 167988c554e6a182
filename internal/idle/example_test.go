package idle_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
)

// These are the handlers of docs/traffic.md.

var left atomic.Int64

func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left.Add(1)
		defer left.Add(-1)
		next.ServeHTTP(w, r)
	})
}

func idle(w http.ResponseWriter, _ *http.Request) {
	if n := left.Load(); n > 0 {
		http.Error(w, strconv.FormatInt(n, 10), http.StatusServiceUnavailable)
	}
}

func Example() {
	ask := func() {
		answer := httptest.NewRecorder()
		idle(answer, nil)
		fmt.Println(answer.Code, answer.Body)
	}
	application := counted(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ask() }))
	application.ServeHTTP(httptest.NewRecorder(), nil)
	ask()
	// Output:
	// 503 1
	//
	// 200
}
