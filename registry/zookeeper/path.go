package zookeeper

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// idPrefix begins the ID of each entry that Rollcall writes, so that no other ID is taken.
const idPrefix = "rollcall-"

// reserved is ZooKeeper's own folder at its root.
const reserved = "zookeeper"

// tree is where the entries are: {chroot}{base}/{service}/{id}.
type tree struct {
	chroot string // "" without
	root   string // of the services; "" if they are at ZooKeeper's own root
}

func newTree(chroot, base string) tree {
	return tree{chroot: chroot, root: chroot + strings.TrimSuffix(base, slash)}
}

// folder is the path of the services, which ZooKeeper's own root has too.
func (t tree) folder() string {
	if t.root == "" {
		return slash
	}
	return t.root
}

func (t tree) service(name string) string { return t.root + slash + name }

func (t tree) entry(in registry.Instance) string { return t.service(in.Service) + slash + idOf(in) }

// parents returns the folders down to that of the service, the topmost first, without the chroot.
func (t tree) parents(service string) []string {
	path := t.service(service)
	var parents []string
	for i := len(t.chroot) + 1; i < len(path); i++ {
		if path[i] == '/' {
			parents = append(parents, path[:i])
		}
	}
	return append(parents, path)
}

// idOf is the same for all pods that get the address, so that there is one entry there at most.
func idOf(in registry.Instance) string { return idPrefix + in.Endpoint() }

// parseID returns address and port of an entry that Rollcall wrote.
func parseID(id string) (address string, port int, ours bool) {
	endpoint, ours := strings.CutPrefix(id, idPrefix)
	if !ours {
		return "", 0, false
	}
	address, text, err := net.SplitHostPort(endpoint)
	if err != nil {
		return "", 0, false
	}
	port, err = strconv.Atoi(text)
	in := registry.Instance{Address: address, Port: port}
	return address, port, err == nil && idOf(in) == id
}

// check returns a terminal error if an instance can't be written.
func (t tree) check(in registry.Instance) error {
	if err := driverkit.CheckInstance(in); err != nil {
		return err
	}
	if err := checkSegment(in.Service); err != nil {
		return registry.Terminal(fmt.Errorf("ZooKeeper can't store service %q: %w", in.Service, err))
	}
	if t.root == "" && in.Service == reserved {
		return registry.Terminal(
			errors.New("ZooKeeper keeps its own data under this name: give the service another one, or set options.base"))
	}
	return nil
}

// checkSegment holds a name against what ZooKeeper allows in one part of a path (PathUtils.validatePath). Names are not
// escaped: Curator's readers look for the name as it is.
func checkSegment(name string) error {
	switch {
	case name == "":
		return errors.New("a name between slashes is empty")
	case name == "." || name == "..":
		return errors.New(`"." and ".." are not allowed as a name`)
	case strings.Contains(name, slash):
		return errors.New("a slash would make a folder; set folders above the services in options.base")
	}
	for _, c := range name {
		if forbidden(c) {
			return fmt.Errorf("the character %U is not allowed", c)
		}
	}
	return nil
}

// forbidden holds for control characters, private use and specials, and for what needs two of Java's characters.
func forbidden(c rune) bool {
	switch {
	case c <= 0x1f, c >= 0x7f && c <= 0x9f, c >= 0xd800 && c <= 0xf8ff, c >= 0xfff0:
		return true
	}
	return false
}
