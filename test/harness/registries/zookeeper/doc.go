// Package zookeeper runs a real ZooKeeper. The tests of test/registries/zookeeper prove the driver on it.
//
// Server and readers are the jars that Apache and Spring publish on Maven Central, pinned by checksum, and run by the
// machine's Java: that needs neither root nor a distribution's package, and is the same everywhere.
package zookeeper
