// Command coredns is CoreDNS with no plugins but etcd and bind.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/etcd"
)

func main() { coremain.Run() }
