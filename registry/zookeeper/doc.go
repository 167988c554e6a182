// Package zookeeper writes instances into ZooKeeper as Apache Curator's service discovery does, so that its readers, Spring
// Cloud Zookeeper among them, find them: one znode {base}/{service}/{id} with Curator's JSON for each.
//
// It uses github.com/go-zookeeper/zk, the one maintained client in Go, which keeps a session over reconnects. What it lacks
// is around it here: its calls take no context (run), it sends what was queued while there was no connection whenever
// there is one again (session), it believes the length that a peer announces (framed), it gives names no second look-up
// (hosts), and its Close waits for an answer (wire).
//
// Entries are persistent nodes: one that belonged to Rollcall's session would go with it, and all traffic with all of them,
// where Rollcall is down for longer than a session lasts. Readers see no difference.
//
// Sources: the form of an entry is that of JsonInstanceSerializer and ServiceInstance in Curator 5
// (https://github.com/apache/curator, curator-x-discovery), parents are containers as its creatingParentContainersIfNeeded
// makes them, and the payload for Spring is ZookeeperInstance, the status that its load balancer reads that of
// ZookeeperServiceInstanceListSupplier (https://github.com/spring-cloud/spring-cloud-zookeeper). What ZooKeeper promises is
// in its programmer's guide: https://zookeeper.apache.org/doc/r3.9.4/zookeeperProgrammers.html.
package zookeeper
