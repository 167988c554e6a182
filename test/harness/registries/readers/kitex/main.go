// Command kitex chooses from a service with Kitex's own resolver of etcd and its balancer, with their defaults, as its clients do for each
// call.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/pkg/loadbalance"
	"github.com/cloudwego/kitex/pkg/loadbalance/lbcache"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	etcd "github.com/kitex-contrib/registry-etcd"

	"github.com/rollcall-dev/rollcall/test/harness/registries/readers/follow"
)

const (
	// turns of the balancer reach each of a few pods, whose weights are alike.
	turns = 20
	every = 2 * time.Millisecond
)

func main() { follow.Main(run) }

func run(tell func([]string)) error {
	endpoint := flag.String("endpoint", "", "the client URL of etcd")
	service := flag.String("service", "", "the service")
	flag.Parse()
	klog.SetOutput(io.Discard)
	resolver, err := etcd.NewEtcdResolver([]string{*endpoint})
	if err != nil {
		return fmt.Errorf("making the resolver: %w", err)
	}
	factory := lbcache.NewBalancerFactory(resolver, loadbalance.NewWeightedRoundRobinBalancer(), lbcache.Options{})
	target := rpcinfo.NewEndpointInfo(*service, "", nil, nil)
	go func() {
		for range time.Tick(every) {
			tell(choose(factory, target))
		}
	}()
	return nil
}

// choose returns who gets the next calls.
func choose(factory *lbcache.BalancerFactory, target rpcinfo.EndpointInfo) (all []string) {
	balancer, err := factory.Get(context.Background(), target)
	if err != nil {
		return nil
	}
	picker := balancer.GetPicker()
	for range turns {
		if instance := picker.Next(context.Background(), nil); instance != nil {
			all = append(all, instance.Address().String())
		}
	}
	return all
}
