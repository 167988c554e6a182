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
		Addr: ":8080", Handler: handler(getenv("POD_NAME"), getenv("VERSION"), delay), ReadHeaderTimeout: 5 * time.Second,
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
// gets the end of its answer that much later. The probe passes when the start-up delay is over.
func handler(pod, version string, delay time.Duration) http.Handler {
	var ready atomic.Bool
	time.AfterFunc(delay, func() { ready.Store(true) })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /crash", func(http.ResponseWriter, *http.Request) { os.Exit(1) })
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		if !ready.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"pod":%q,`, pod)
		if wait, err := time.ParseDuration(r.FormValue("for")); err == nil {
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(wait):
			case <-r.Context().Done():
			}
		}
		fmt.Fprintf(w, `"image":%q}`, version)
	})
	return mux
}
