// Command gozero follows a service with go-zero's own discovery, as its clients do, and writes a line of JSON for each change of
// the addresses that it has.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/zeromicro/go-zero/core/discov"
	"github.com/zeromicro/go-zero/core/logx"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

func run() error {
	endpoint := flag.String("endpoint", "", "the client URL of etcd")
	key := flag.String("key", "", "the key of the service")
	flag.Parse()
	logx.Disable() // it writes to the standard output
	subscriber, err := discov.NewSubscriber([]string{*endpoint}, *key)
	if err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	defer subscriber.Close()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	tell := func() {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(slices.Sorted(slices.Values(append([]string{}, subscriber.Values()...))))
	}
	subscriber.AddListener(tell)
	tell()
	_, err = io.Copy(io.Discard, os.Stdin) // it ends with the process that started this one
	return err
}
