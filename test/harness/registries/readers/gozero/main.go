// Command gozero follows a service with go-zero's own discovery, as its clients do.
package main

import (
	"flag"
	"fmt"

	"github.com/zeromicro/go-zero/core/discov"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/rollcall-dev/rollcall/test/harness/registries/readers/follow"
)

func main() { follow.Main(run) }

func run(tell func([]string)) error {
	endpoint := flag.String("endpoint", "", "the client URL of etcd")
	key := flag.String("key", "", "the key of the service")
	flag.Parse()
	logx.Disable() // it writes to the standard output
	subscriber, err := discov.NewSubscriber([]string{*endpoint}, *key)
	if err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	subscriber.AddListener(func() { tell(subscriber.Values()) })
	tell(subscriber.Values())
	return nil
}
