// Package lan gives servers a network: each is in a network namespace of its own, with an address of its own, and what one sends to
// another can be lost, in one direction or both, whatever the protocol. This process reaches all of them.
//
// It takes Linux with iproute2 and util-linux, and root or a user namespace (`unshare --user --map-root-user --net`). Everything is gone
// with this process, however that ends.
package lan

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// Here is this process' own place in the network.
const Here = -1

// LAN is a network of hosts. Its methods are safe for concurrent use.
type LAN struct {
	launcher *process.Launcher
	release  func()
	dir      string
	// bridge and hosts hold the namespaces.
	bridge *process.Process
	hosts  []*process.Process
	subnet string // without the last number
	device string // ours
}

const (
	// gateway is the last number of this process' address. A host's is its index and first.
	gateway, first = 254, 1
	// nobody has this hardware address: what is sent to it is lost.
	nobody = "02:00:00:00:00:ff"
	// subnets of 198.18.0.0/15, which is for tests of networks (RFC 2544).
	subnets = 512
)

// Start makes a network of so many hosts.
func Start(ctx context.Context, hosts int) (*LAN, error) {
	dir, release, err := process.NewDir("", "rollcall-lan-")
	if err != nil {
		return nil, fmt.Errorf("making a network: %w", err)
	}
	l := &LAN{launcher: process.NewLauncher(), release: release, dir: dir}
	if err := l.start(ctx, hosts); err != nil {
		l.Stop()
		return nil, fmt.Errorf("making a network of %d hosts, which takes root or a user namespace, iproute2 and util-linux: %w", hosts, err)
	}
	return l, nil
}

func (l *LAN) start(ctx context.Context, hosts int) (err error) {
	if l.bridge, err = l.hold(ctx, "bridge"); err != nil {
		return err
	}
	if l.subnet, err = freeSubnet(l.bridge.PID()); err != nil {
		return err
	}
	l.device = fmt.Sprintf("rc%d", l.bridge.PID())
	err = errors.Join(
		run(ctx, l.bridge, `ip link set lo up; ip link add br0 type bridge; ip link set br0 up`),
		run(ctx, nil, `ip link add %[1]s type veth peer name here netns %[2]d; ip address add %[3]s/24 dev %[1]s; ip link set %[1]s up`,
			l.device, l.bridge.PID(), l.Address(Here)),
		run(ctx, l.bridge, `ip link set here master br0 up`))
	for i := 0; i < hosts && err == nil; i++ {
		err = l.add(ctx, i)
	}
	return err
}

func (l *LAN) add(ctx context.Context, i int) error {
	host, err := l.hold(ctx, fmt.Sprintf("host-%d", i))
	if err != nil {
		return err
	}
	l.hosts = append(l.hosts, host)
	return errors.Join(
		run(ctx, l.bridge, `ip link add h%[1]d type veth peer name lan0 netns %[2]d; ip link set h%[1]d master br0 up`, i, host.PID()),
		run(ctx, host, `ip link set lo up; ip address add %s/24 dev lan0; ip link set lan0 up`, l.Address(i)))
}

// hold starts a process that does nothing but keep a namespace.
func (l *LAN) hold(ctx context.Context, name string) (*process.Process, error) {
	p, err := process.Start(l.launcher, l.dir, process.Command{Name: name, Path: "unshare", Args: []string{"--net", "sleep", "infinity"}})
	if err != nil {
		return nil, err
	}
	return p, p.WaitReady(ctx, func(context.Context) error {
		own, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("reading the namespace: %w", err)
		}
		its, err := os.Readlink(namespace(p))
		if err == nil && its == own {
			err = errors.New("it has no namespace yet")
		}
		return err
	})
}

func namespace(p *process.Process) string { return fmt.Sprintf("/proc/%d/ns/net", p.PID()) }

// run runs a script in a namespace, or in this process' own.
func run(ctx context.Context, in *process.Process, script string, args ...any) error {
	command := []string{"sh", "-ec", fmt.Sprintf(script, args...)}
	if in != nil {
		command = append([]string{"nsenter", "--net=" + namespace(in)}, command...)
	}
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running %q: %w: %s", command[len(command)-1], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// freeSubnet returns one that no device of this machine has, beginning with the n-th.
func freeSubnet(n int) (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("listing the addresses of this machine: %w", err)
	}
	for i := range subnets {
		number := (n + i) % subnets
		subnet := fmt.Sprintf("198.%d.%d.", 18+number/256, number%256)
		taken := false
		for _, a := range addresses {
			taken = taken || strings.HasPrefix(a.String(), subnet)
		}
		if !taken {
			return subnet, nil
		}
	}
	return "", errors.New("no subnet of 198.18.0.0/15 is free")
}

// Address is a host's, or that of this process for [Here].
func (l *LAN) Address(host int) string {
	if host == Here {
		return fmt.Sprintf("%s%d", l.subnet, gateway)
	}
	return fmt.Sprintf("%s%d", l.subnet, host+first)
}

// On is the command on a host: the process that it starts is the server itself.
func (l *LAN) On(host int, c process.Command) process.Command {
	c.Args = append([]string{"--net=" + namespace(l.hosts[host]), "--", c.Path}, c.Args...)
	c.Path = "nsenter"
	return c
}

// Cut has all be lost from now on that one host sends to another; each may be [Here].
func (l *LAN) Cut(ctx context.Context, from, to int) error {
	return l.neighbour(ctx, from, `ip neighbour replace %s lladdr `+nobody+` nud permanent dev %s`, l.Address(to))
}

// Isolate cuts a host off from all other hosts, in both directions; this process reaches it still. Heal undoes it.
func (l *LAN) Isolate(ctx context.Context, host int) error {
	var all error
	for i := range l.hosts {
		if i != host {
			all = errors.Join(all, l.Cut(ctx, host, i), l.Cut(ctx, i, host))
		}
	}
	return all
}

// Heal ends every cut.
func (l *LAN) Heal(ctx context.Context) error {
	const all = `ip neighbour flush nud permanent dev %s`
	err := run(ctx, nil, all, l.device)
	for _, host := range l.hosts {
		err = errors.Join(err, run(ctx, host, all, "lan0"))
	}
	return err
}

func (l *LAN) neighbour(ctx context.Context, from int, script, to string) error {
	if from == Here {
		return run(ctx, nil, script, to, l.device)
	}
	return run(ctx, l.hosts[from], script, to, "lan0")
}

// Stop ends the network. It can be called more than once.
func (l *LAN) Stop() {
	for _, p := range append(l.hosts, l.bridge) {
		if p != nil {
			p.Kill()
		}
	}
	if l.launcher != nil {
		l.launcher.Close()
		l.launcher = nil
		l.release()
	}
}
