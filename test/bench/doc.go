// Command bench measures Rollcall between two others: the floor, which is the least that can flip a hook, and the recipe,
// which is what OpenKruise's guide has one write. Each is a process of its own, against one real etcd and kube-apiserver.
//
//	make bench                # five rounds and everything else, about 40 minutes
//	make bench BENCH=short    # one round of small sizes, 10 minutes
//
// A load driver plays Kruise: it puts pods through the states of the lifecycle, and a watch of its own times the flips of
// their hooks, from when it sees the state to when it sees the flip. The three take turns in each round, one at a time, with
// pods of their own. They share the machine with the API server and the driver, so only the ratios of one round say
// something: the table has the medians of these ratios, and their spread.
//
//	floor     a watch and 32 workers that patch the label, without a registry
//	recipe    the guide's four cases with controller-runtime's defaults, 3 workers
//	rollcall  the manager that ships, with its defaults and no drain
//
// One part has real servers, of etcd, Consul, ZooKeeper and Nacos: it cuts the network to them while pods join a large service, and
// measures how long that stays unknown, and how fast the pods of another service register meanwhile.
//
// The registry of all others speaks the protocol of the driver http, remembers, and answers after a delay.
package main
