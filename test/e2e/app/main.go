// Command app is the application of the end-to-end tests, and, as "app pause", the container that holds a pod's
// network. Its image says which version it is, the pod's template how it starts and stops.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

func main() { os.Exit(start()) }

// start returns the exit status.
func start() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == "pause" {
		<-ctx.Done()
		return 0
	}
	if err := run(ctx, os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		return 1
	}
	return 0
}

// run serves until ctx ends. Where STOP is graceful it then finishes what is under way; otherwise it drops everything,
// as a program without a handler for SIGTERM does.
func run(ctx context.Context, getenv func(string) string) error {
	delay, err := time.ParseDuration(getenv("START_DELAY"))
	if err != nil {
		return fmt.Errorf("START_DELAY: write a duration such as 1s: %w", err)
	}
	server := &http.Server{
		Addr: ":8080", Handler: handler(getenv("POD_NAME"), getenv("VERSION"), delay),
		// Clients also open connections that they use later: a server that closes one of them as its first request comes loses that request.
		ReadHeaderTimeout: time.Hour,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	if getenv("STOP") != "graceful" {
		return nil
	}
	if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("finishing what is under way: %w", err)
	}
	return nil
}

// handler answers with the pod's name and the version, as podserver does for pods without containers. A request with ?for=1s
// gets the end of its answer that much later. The probe passes when the start-up delay is over. What is under way but for the
// probe shows at /idle.
func handler(pod, version string, delay time.Duration) http.Handler {
	var ready atomic.Bool
	var left, hung atomic.Int64
	time.AfterFunc(delay, func() { ready.Store(true) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /idle", func(w http.ResponseWriter, _ *http.Request) {
		if n := left.Load(); n > 0 {
			http.Error(w, strconv.FormatInt(n, 10), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /crash", func(http.ResponseWriter, *http.Request) { os.Exit(1) })
	mux.HandleFunc("POST /hang", func(_ http.ResponseWriter, r *http.Request) {
		if wait, err := time.ParseDuration(r.FormValue("for")); err == nil {
			hung.Store(time.Now().Add(wait).UnixNano())
		}
	})
	mux.HandleFunc("GET /events", counted(&left, func(w http.ResponseWriter, r *http.Request) { stream(w, r, pod) }))
	mux.HandleFunc("POST /", counted(&left, func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"pod":%q,`, pod)
		if wait, err := time.ParseDuration(r.FormValue("for")); err == nil {
			_ = http.NewResponseController(w).Flush()
			pause(r.Context(), wait)
		}
		fmt.Fprintf(w, `"image":%q}`, version)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), time.Until(time.Unix(0, hung.Load())))
		mux.ServeHTTP(w, r)
	})
}

// counted is what docs/traffic.md recommends.
func counted(left *atomic.Int64, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		left.Add(1)
		defer left.Add(-1)
		next(w, r)
	}
}

// stream sends an event each second, and the last one when ?for=15s is over.
func stream(w http.ResponseWriter, r *http.Request, pod string) {
	length, err := time.ParseDuration(r.FormValue("for"))
	if err != nil {
		http.Error(w, "set for to a duration such as 15s: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for end := time.Now().Add(length); r.Context().Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			fmt.Fprint(w, "event: end\ndata: \n\n")
			return
		}
		fmt.Fprintf(w, "data: %s\n\n", pod)
		_ = out.Flush()
		pause(r.Context(), min(left, time.Second))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
