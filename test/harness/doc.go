// Package harness is the house of everything that a test starts. Each part has a package below:
//
//	process       servers as processes that end with the test, free ports, folders and locks
//	cache         what is built or downloaded once for a machine
//	pki           certificates
//	cluster       the control plane with OpenKruise; cluster/podserver answers for the pods, cluster/servers builds it
//	manifests     manifests, read, rendered as kustomize does and applied
//	kube          what is asked of an API server again and again: pods, and changes
//	rollout       a CloneSet, what its users do to it and whether it has settled, clients that send requests, and a mirror
//	account       the ServiceAccount and the roles that ship, for managers outside the cluster
//	manager       the manager, built and run
//	registries    the registries' servers, and clients that read from them
//	fakeregistry  a registry with faults on demand, which writes down every call
//	httpserver    the server of the HTTP registry protocol, over any registry that can be read back
//	drivertest    what the tests of every driver ask for: servers that are in trouble, and which configurations its New takes
//	apiproxy      what stands between a manager and the API server
//	history       every version of what a test watches
//	checker       what managers did to pods, held against what a registry acknowledged
//	expect        waits and expectations
//	series        metrics as a scrape shows them
//	mount         files as kubelet mounts them
//	bubble        tables and scenes whose time passes while all wait
//	network       the way to a server, which can be slow, break or be cut
//	wait          waits of commands, which have no test to end
//	command       how chaos and the demo begin and end
//
// The tests themselves are in test/integration (scenarios), test/registries (drivers on real servers), test/chaos,
// test/demo, test/bench, test/e2e and test/outoftree. test/ready builds what they need.
package harness
