package lan

import (
	"context"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// silence is how long nothing must come of what was cut: on one machine a packet takes microseconds.
const silence = 300 * time.Millisecond

func TestWhatIsCut(t *testing.T) {
	t.Parallel()
	l := start(t, 3)
	for name, tc := range map[string]struct {
		reason string
		cut    func(ctx context.Context) error
		// arrives says whether what one host sends to another does.
		arrives map[[2]int]bool
	}{
		"nothing": {
			reason:  "everybody reaches everybody",
			cut:     l.Heal,
			arrives: map[[2]int]bool{{0, 1}: true, {1, 0}: true, {0, 2}: true, {Here, 0}: true, {0, Here}: true},
		},
		"one direction": {
			reason:  "what comes the other way is not lost",
			cut:     func(ctx context.Context) error { return l.Cut(ctx, 0, 1) },
			arrives: map[[2]int]bool{{0, 1}: false, {1, 0}: true, {0, 2}: true, {Here, 0}: true},
		},
		"one host": {
			reason:  "it is alone, and reached from here",
			cut:     func(ctx context.Context) error { return l.Isolate(ctx, 0) },
			arrives: map[[2]int]bool{{0, 1}: false, {1, 0}: false, {2, 0}: false, {1, 2}: true, {Here, 0}: true, {0, Here}: true},
		},
		"from here": {
			reason:  "clients lose a server that its peers have",
			cut:     func(ctx context.Context) error { return l.Cut(ctx, Here, 0) },
			arrives: map[[2]int]bool{{Here, 0}: false, {0, Here}: true, {1, 0}: true},
		},
	} {
		expect.NoError(t, l.Heal(t.Context()))
		expect.NoError(t, tc.cut(t.Context()))
		for way, want := range tc.arrives {
			expect.Equal(t, want, l.arrives(t, way[0], way[1]), "%s: %s: what %d sends to %d arrives", name, tc.reason, way[0], way[1])
		}
	}
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	l := start(t, 1)
	l.Stop()
	l.Stop()
	expect.Becomes(t, "the network's device is gone", func() bool {
		_, err := net.InterfaceByName(l.device)
		return err != nil
	})
}

func start(t *testing.T, hosts int) *LAN {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: networks with cuts take root; run it as root or by hack/own-network.sh")
	}
	l, err := Start(t.Context(), hosts)
	expect.NoError(t, err)
	t.Cleanup(l.Stop)
	return l
}

// arrives reports whether a datagram does, of which some are sent.
func (l *LAN) arrives(t *testing.T, from, to int) (arrives bool) {
	t.Helper()
	var receiver, sender net.PacketConn
	l.inside(t, to, func() (err error) {
		receiver, err = net.ListenPacket("udp4", net.JoinHostPort(l.Address(to), "0"))
		return err
	})
	defer receiver.Close()
	l.inside(t, from, func() (err error) {
		sender, err = net.ListenPacket("udp4", net.JoinHostPort(l.Address(from), "0"))
		return err
	})
	defer sender.Close()
	for range 3 {
		_, err := sender.WriteTo([]byte("hello"), receiver.LocalAddr())
		expect.NoError(t, err)
	}
	expect.NoError(t, receiver.SetReadDeadline(time.Now().Add(silence)))
	_, _, err := receiver.ReadFrom(make([]byte, 8))
	return err == nil
}

// inside makes a socket on a host: it stays there.
func (l *LAN) inside(t *testing.T, host int, open func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends, which is in another namespace
		if host == Here {
			done <- open()
			return
		}
		file, err := os.Open(namespace(l.hosts[host]))
		if err == nil {
			defer file.Close()
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = open()
		}
		done <- err
	}()
	expect.NoError(t, <-done)
}
