package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/version"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// product is what Rollcall runs with, in the versions that the tests' servers are pinned to.
type product struct {
	name string
	// pins are files below test/harness that pin a version each, and version finds it there.
	pins    string
	version *regexp.Regexp
	// all versions are tested with each change, not only the newest.
	all bool
	// until is when its project's support of a minor version ends; one that is not in there has no published date.
	until  map[string]string
	source string
}

// products are in the order of the page. The dates were looked up at the sources on 2026-11-27.
func products() []product {
	return []product{
		{
			name: "Kubernetes", pins: "cluster/servers/kubernetes-*/go.mod", version: regexp.MustCompile(`k8s\.io/kubernetes v(\S+)`),
			until: map[string]string{
				"1.26": "2024-02-28", "1.34": "2026-10-27", "1.35": "2027-02-28", "1.36": "2027-06-28", "1.37": "2027-10-28",
			},
			source: "https://kubernetes.io/releases/",
		},
		{
			name: "OpenKruise", pins: "cluster/servers/kruise-*/go.mod", version: regexp.MustCompile(`github\.com/openkruise/kruise v(\S+)`),
			source: "https://github.com/openkruise/kruise/releases",
		},
		{
			name: "Kruise Rollouts", pins: "cluster/servers/rollouts-*/go.mod",
			version: regexp.MustCompile(`github\.com/openkruise/rollouts v(\S+)`),
			source:  "https://github.com/openkruise/rollouts/releases",
		},
		{
			name: "Consul", pins: "registries/servers/consul-*/go.mod", version: regexp.MustCompile(`github\.com/hashicorp/consul v(\S+)`),
			until:  map[string]string{"1.22": "2026-10-31 (Enterprise)"},
			source: "https://developer.hashicorp.com/consul/docs/upgrade/lts",
		},
		{
			name: "etcd", pins: "registries/servers/etcd-*/go.mod", version: regexp.MustCompile(`go\.etcd\.io/etcd/server/v3 v(\S+)`),
			until:  map[string]string{"3.6": "3.8 is released", "3.7": "3.9 is released"},
			source: "https://etcd.io/docs/current/op-guide/versioning/",
		},
		{
			name: "ZooKeeper", pins: "registries/zookeeper/server/jars.txt", version: regexp.MustCompile(`/zookeeper/zookeeper/([^/]+)/`),
			until:  map[string]string{"3.9": "half a year after 3.11 is released"},
			source: "https://zookeeper.apache.org/releases.html",
		},
		{
			name: "Nacos", pins: "registries/nacos/server/v*/jars.txt", version: regexp.MustCompile(`/nacos-naming/([^-/]+)`), all: true,
			source: "https://github.com/alibaba/nacos/releases",
		},
		{
			name: "Eureka, by Spring Cloud", pins: "registries/servers/eureka-*/pom.xml",
			version: regexp.MustCompile(`<spring-cloud\.version>([^<]+)<`),
			until:   map[string]string{"2025.0": "2026-06-30", "2025.1": "2026-12-31"},
			source:  "https://spring.io/projects/spring-cloud#support",
		},
	}
}

// tested are the versions that are pinned, the newest first.
func (p product) tested() (versions []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, "test/harness", p.pins))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("there is no file %s", p.pins)
	}
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		found := p.version.FindSubmatch(text)
		if readErr != nil || found == nil {
			err = errors.Join(err, readErr, fmt.Errorf("%s: looking for %s: nothing found", file, p.version))
			continue
		}
		versions = append(versions, string(found[1]))
	}
	slices.SortFunc(versions, func(a, b string) int { return version.Compare("go"+b, "go"+a) })
	return versions, err
}

// minor is the version without what changes in a patch.
func minor(version string) string {
	return strings.Join(strings.SplitN(version, ".", 3)[:2], ".")
}

func versionsPage() (page, error) {
	p := page{
		title: "Supported versions",
		intro: "The versions of Kubernetes, OpenKruise and the registries that Rollcall is tested with, and until when their own projects\n" +
			"support them.\n\n" +
			"Rollcall supports the versions in this table, and the minor versions of Kubernetes and OpenKruise between two of them.\n" +
			"Older versions may work, but are not tested.\n\n" +
			"The policy: the minor versions of Kubernetes that Kubernetes itself supports, the two newest minor versions of OpenKruise,\n" +
			"and the two newest of each registry if the tests can run its server. A version is removed from the table only in a minor\n" +
			"release of Rollcall, and the changelog lists it.\n\n" +
			"The tests have no server of [Nacos 3.2](../drivers/nacos.md): with 3.1, they use only what 3.2 serves too. Nor do they have\n" +
			"a server of 2.5 that is newer than 2.5.0. They build Consul from its Go module, of which 1.22 is the newest minor version\n" +
			"that the Go module proxy serves, so Consul 2.0 is not tested.\n\n" +
			"Kubernetes before 1.30 has no ValidatingAdmissionPolicy: leave out the components `lint` and `write-policy`, with Helm\n" +
			"`lint.enabled` and `writePolicy.enabled`. `kubectl rollcall lint` checks the same as the first; nothing replaces the second.\n\n" +
			"\"Each change\" means that every change to Rollcall is tested with that version before it is merged. \"Each night\" means that\n" +
			"the tests run with it every night.",
		head: []string{"", "version", "tested", "supported by its project until"},
	}
	var failed error
	for _, product := range products() {
		versions, err := product.tested()
		failed = errors.Join(failed, err)
		for i, version := range versions {
			often := "each night"
			if i == 0 || product.all {
				often = "each change"
			}
			until := cmp.Or(product.until[minor(version)], "no published date")
			p.rows = append(p.rows, []string{product.name, version, often, fmt.Sprintf("[%s](%s)", until, product.source)})
		}
	}
	return p, failed
}
