// Package migration moves CloneSets from one real registry to another, from Eureka to Nacos, while clients send requests all
// the while and go over from the one to the other by and by. Nothing may be lost.
//
//	go test -v ./test/registries/migration
//
// It runs the whole product: the manager with both drivers, OpenKruise on the test cluster, both servers, and pods that
// answer requests.
package migration
