// Package zookeeper writes instances into ZooKeeper as Apache Curator's service discovery does, so that its readers, Spring
// Cloud Zookeeper among them, find them: one znode {base}/{service}/{id} with Curator's JSON for each.
//
// It uses github.com/go-zookeeper/zk, the one maintained client in Go, which keeps a session over reconnects. This package adds
// what the client lacks: its calls take no context (run), it sends queued requests whenever there is a connection again (session),
// it trusts the length that a peer announces (framed), it looks a name up only once (hosts), and its Close waits for an answer
// (wire).
//
// Entries are persistent nodes. Ephemeral ones would disappear with Rollcall's session if it is down for longer than a session
// lasts, and all traffic with them. Readers see no difference.
//
// Sources: the form of an entry is that of JsonInstanceSerializer and ServiceInstance in Curator 5
// (https://github.com/apache/curator, curator-x-discovery), parents are containers as its creatingParentContainersIfNeeded
// makes them, and the payload for Spring is ZookeeperInstance, the status that its load balancer reads that of
// ZookeeperServiceInstanceListSupplier (https://github.com/spring-cloud/spring-cloud-zookeeper). ZooKeeper's guarantees are in
// its programmer's guide: https://zookeeper.apache.org/doc/r3.9.4/zookeeperProgrammers.html.
package zookeeper
