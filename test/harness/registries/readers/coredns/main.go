// Command coredns is CoreDNS with no plugins but etcd, cache and bind.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/etcd"
)

func main() { coremain.Run() }
