package zookeeper

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]struct {
		servers []string
		chroot  string
	}{
		"zk":                  {[]string{"zk:2181"}, ""},
		"zk/":                 {[]string{"zk:2181"}, ""},
		"zk-1:1, zk-2:2/a/b":  {[]string{"zk-1:1", "zk-2:2"}, "/a/b"},
		"[fd00::1]:1,[::2]/a": {[]string{"[fd00::1]:1", "[::2]:2181"}, "/a"},
	} {
		servers, chroot, err := parseEndpoint(registry.Config{Endpoint: endpoint})
		if err != nil || chroot != want.chroot || !cmp.Equal(servers, want.servers) {
			t.Errorf("%q: got %v, %q, %v; want %v", endpoint, servers, chroot, err, want)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	in := registry.Instance{Service: "web", Address: "fd00::1", Port: 80}
	for name, tc := range map[string]struct {
		tree    tree
		folder  string
		entry   string
		parents []string
	}{
		"base":           {newTree("", "/services"), "/services", "/services/web/rollcall-[fd00::1]:80", []string{"/services", "/services/web"}},
		"root":           {newTree("", "/"), "/", "/web/rollcall-[fd00::1]:80", []string{"/web"}},
		"chroot":         {newTree("/a/b", "/c/d"), "/a/b/c/d", "/a/b/c/d/web/rollcall-[fd00::1]:80", []string{"/a/b/c", "/a/b/c/d", "/a/b/c/d/web"}},
		"root of chroot": {newTree("/a", "/"), "/a", "/a/web/rollcall-[fd00::1]:80", []string{"/a/web"}},
	} {
		expect.Equal(t, tc.folder, tc.tree.folder(), "%s: folder", name)
		expect.Equal(t, tc.entry, tc.tree.entry(in), "%s: entry", name)
		expect.Equal(t, tc.parents, tc.tree.parents("web"), "%s: parents", name)
	}
}

func TestZooKeepersOwnNameIsRefused(t *testing.T) {
	t.Parallel()
	in := sample()
	in.Service = "zookeeper"
	if err := newTree("", "/").check(in); err == nil {
		t.Error("service zookeeper at ZooKeeper's root: got no error")
	}
	for _, elsewhere := range []tree{newTree("/a", "/"), newTree("", "/services")} {
		if err := elsewhere.check(in); err != nil {
			t.Errorf("service zookeeper in %s: got error %v", elsewhere.folder(), err)
		}
	}
}

func sample() registry.Instance {
	return registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: 8080, Cluster: "prod-1", Namespace: "shop", Pod: "web-0", UID: "u-1",
		Weight: 3, Zone: "z", Metadata: map[string]string{"a": "<b>"},
	}
}

// TestSpringsAddressIsPartOfAURL: Spring's clients replace the host of a request's URL by it, and Curator's fill the URI with it.
func TestSpringsAddressIsPartOfAURL(t *testing.T) {
	t.Parallel()
	in := sample()
	in.Address = "fd00::1"
	for payload, want := range map[string]string{
		payloadNone: `"address":"fd00::1" "://[" "]:"`, payloadMap: `"address":"fd00::1" "://[" "]:"`, payloadSpring: `"address":"[fd00::1]" "://" ":"`,
	} {
		raw, err := Options{Payload: payload}.encode(in, registry.InService, 7)
		expect.NoError(t, err)
		for part := range strings.FieldsSeq(want) {
			if !strings.Contains(string(raw), part) {
				t.Errorf("with payload %s: got %s, want it with %s", payload, raw, part)
			}
		}
		got, _, ours := decode("web", idOf(in), raw)
		if !ours || got.Address != in.Address {
			t.Errorf("with payload %s: read back %+v, ours: %t", payload, got, ours)
		}
		for _, e := range decodeForeign("web", "copy", in.Cluster, raw) {
			if e.Address != in.Address {
				t.Errorf("with payload %s: a copy is at %q, want the pod's address", payload, e.Address)
			}
		}
	}
}

// TestSpringsClientsUseTLS where there is an sslPort, in place of the port.
func TestSpringsClientsUseTLS(t *testing.T) {
	t.Parallel()
	for secure, want := range map[string]string{"true": `"port":8080,"sslPort":8080`, "false": `"port":8080,"sslPort":null`} {
		in := sample()
		in.Metadata = map[string]string{"secure": secure}
		raw, err := Options{Payload: payloadSpring}.encode(in, registry.InService, 7)
		expect.NoError(t, err)
		if !strings.Contains(string(raw), want) {
			t.Errorf("secure=%s: got %s, want it with %s", secure, raw, want)
		}
		if got, _, ours := decode("web", idOf(in), raw); !ours || !got.Equal(in) {
			t.Errorf("secure=%s: read back %+v, ours: %t", secure, got, ours)
		}
	}
}

// TestEncode has what stability promises; that Curator writes the same is shown by Curator itself.
func TestEncode(t *testing.T) {
	t.Parallel()
	const (
		head = `{"name":"web","id":"rollcall-10.0.0.1:8080","address":"10.0.0.1","port":8080,"sslPort":null,"payload":`
		meta = `"a":"<b>",`
		mark = `"rollcall-cluster":"prod-1","rollcall-namespace":"shop","rollcall-pod":"web-0","rollcall-uid":"u-1","weight":"3","zone":"z"}`
		uri  = `"uriSpec":{"parts":[{"value":"scheme","variable":true},{"value":"://","variable":false},` +
			`{"value":"address","variable":true},{"value":":","variable":false},{"value":"port","variable":true}]}`
		permanent = `,"registrationTimeUTC":7,"serviceType":"PERMANENT",` + uri
		spring    = `{"@class":"org.springframework.cloud.zookeeper.discovery.ZookeeperInstance",` +
			`"id":"rollcall-10.0.0.1:8080","name":"web","metadata":{` + meta
	)
	type row struct {
		opts  Options
		state registry.State
		want  string
	}
	expect.Each(t, map[string]row{
		"default": {Options{Payload: payloadNone}, registry.InService, head + `null` + permanent + `,"metadata":{` + meta + mark + `}`},
		"spring, out of service": {
			Options{Payload: payloadSpring, OutOfRotation: outStatus}, registry.OutOfService,
			head + spring + `"instance_status":"OUT_OF_SERVICE",` + mark + `}` + permanent + `}`,
		},
		"not enabled": {
			Options{Payload: payloadNone, OutOfRotation: outEnabled}, registry.OutOfService,
			head + `null` + permanent + `,"enabled":false,"metadata":{` + meta + mark + `}`,
		},
	}, func(t *testing.T, tc row) {
		raw, err := tc.opts.encode(sample(), tc.state, 7)
		expect.NoError(t, err)
		expect.Equal(t, tc.want, string(raw), "the entry")
		got, at, ours := decode("web", "rollcall-10.0.0.1:8080", raw)
		want := registry.Entry{Instance: sample(), State: tc.state}
		if diff := cmp.Diff(want, got); diff != "" || at != 7 || !ours {
			t.Errorf("read back, ours: %t, at %d (-want +got):\n%s", ours, at, diff)
		}
	})
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason     string
		payload    string
		key, value string
	}{
		"a class":  {"Curator's readers would make an object of it", payloadMap, "@class", "java.lang.Runtime"},
		"a status": {"a tenant could put an instance into rotation", payloadSpring, "instance_status", "UP"},
		"a book":   {"the server would end the connection of all", payloadNone, "book", strings.Repeat("x", maxEntry)},
	} {
		in := sample()
		in.Metadata = map[string]string{tc.key: tc.value}
		if _, err := (Options{Payload: tc.payload}).encode(in, registry.InService, 7); err == nil {
			t.Errorf("%s: got no error\nreason: %s", name, tc.reason)
		}
	}
}

func TestWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	raw, err := Options{}.encode(sample(), registry.InService, 7)
	expect.NoError(t, err)
	for name, tc := range map[string]struct{ id, raw string }{
		"another's id":        {"10.0.0.1:8080", string(raw)},
		"an id with no port":  {"rollcall-10.0.0.1", string(raw)},
		"an id by other name": {"rollcall-10.0.0.1:08080", string(raw)},
		"nothing":             {"rollcall-10.0.0.1:8080", ""},
		"no JSON":             {"rollcall-10.0.0.1:8080", "{"},
		"no object":           {"rollcall-10.0.0.1:8080", "[]"},
		"no mark":             {"rollcall-10.0.0.1:8080", `{"name":"web","payload":{"a":"b"}}`},
		"no payload":          {"rollcall-10.0.0.1:8080", `{"name":"web","payload":null}`},
		"a list for payload":  {"rollcall-10.0.0.1:8080", `{"name":"web","payload":[1]}`},
		"no UID":              {"rollcall-10.0.0.1:8080", `{"name":"web","metadata":{"rollcall-uid":""}}`},
	} {
		if e, _, ours := decode("web", tc.id, []byte(tc.raw)); ours {
			t.Errorf("%s: got %+v, want it to have no owner", name, e)
		}
	}
}

func TestWhatIsForeign(t *testing.T) {
	t.Parallel()
	const plain = `"name":"web","id":"a","address":"10.0.0.1","port":8080,"serviceType":"DYNAMIC"`
	const spring = `"payload":{"@class":"` + springClass + `","metadata":{"instance_status":"`
	ours, err := Options{}.encode(sample(), registry.InService, 7)
	expect.NoError(t, err)
	for name, tc := range map[string]struct {
		reason, raw string
		want        []int // its ports
	}{
		"Curator's, with no payload": {"the plain case", `{` + plain + `,"payload":null}`, []int{8080}},
		"Curator's, with a payload":  {"a payload may be anything", `{` + plain + `,"payload":["a"]}`, []int{8080}},
		"enabled":                    {"Curator writes it where asked", `{` + plain + `,"enabled":true}`, []int{8080}},
		"disabled":                   {"Curator's provider leaves it out", `{` + plain + `,"enabled":false}`, nil},
		"Spring's that is up":        {"Spring's load balancer gives it", `{` + plain + `,` + spring + `up"}}}`, []int{8080}},
		"Spring's that is out":       {"Spring's load balancer leaves it out", `{` + plain + `,` + spring + `OUT_OF_SERVICE"}}}`, nil},
		"another Rollcall's":         {"a pod of another cluster may have it next", string(ours), nil},
		"of a TLS port only":         {"a port is optional", `{"name":"web","address":"10.0.0.1","port":null,"sslPort":8443}`, []int{8443}},
		"of a TLS port too":          {"Spring's clients use that, Curator's may use either", `{` + plain + `,"sslPort":8443}`, []int{8080, 8443}},
		"of no port":                 {"no pod has port 0", `{"name":"web","address":"10.0.0.1","port":0,"sslPort":null}`, nil},
		"without an address":         {"it is at no pod's", `{"name":"web","port":8080}`, nil},
		"nothing":                    {"others may keep what they like there", ``, nil},
		"a list":                     {"the same", `[]`, nil},
	} {
		var want []registry.Entry
		for _, port := range tc.want {
			at := registry.Instance{Service: "web", Address: "10.0.0.1", Port: port}
			want = append(want, registry.Entry{Instance: at, State: registry.Foreign})
		}
		expect.Equal(t, want, decodeForeign("web", "app", "prod", []byte(tc.raw)), "%s: %s", name, tc.reason)
	}
}

// The entry is where it is: what it says of its own place is of no matter.
func TestThePlaceIsTheTruth(t *testing.T) {
	t.Parallel()
	raw, err := Options{}.encode(sample(), registry.InService, 7)
	expect.NoError(t, err)
	e, _, ours := decode("moved", "rollcall-10.0.0.9:1", raw)
	if !ours || e.Service != "moved" || e.Endpoint() != "10.0.0.9:1" {
		t.Errorf("got %+v, want service moved at 10.0.0.9:1", e)
	}
}

func TestHostsTakeTurns(t *testing.T) {
	t.Parallel()
	failed := 0
	h := &hosts{failed: func() { failed++ }}
	expect.NoError(t, h.Init([]string{"a", "b", "c"}))
	h.next = 0
	expect := func(server string, again bool, rounds int) {
		t.Helper()
		got, pause := h.Next()
		if got != server || pause != again || failed != rounds {
			t.Fatalf("got %s, again: %t, after %d rounds that failed; want %s, %t, %d", got, pause, failed, server, again, rounds)
		}
	}
	expect("a", false, 0)
	expect("b", false, 0)
	expect("c", false, 0)
	expect("a", true, 1) // all have failed
	expect("b", false, 1)
	h.Connected()
	expect("c", true, 1) // the connection was lost: what is queued is dropped
	expect("a", false, 1)
	expect("b", false, 1)
	expect("c", true, 2)
}

// pipe is a framed connection and the server's end of it.
func pipe(t *testing.T) (*framed, net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return &framed{Conn: client, welcomeBy: time.Now().Add(time.Minute)}, server
}

func TestFramedRefusesNonsense(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		welcomed bool
		length   uint32
		ok       bool
	}
	expect.Each(t, map[string]row{
		"a welcome":        {"it is what ZooKeeper says first", false, 37, true},
		"an old welcome":   {"it has no mark for read-only", false, 36, true},
		"text":             {"HTTP is spoken there", false, binary.BigEndian.Uint32([]byte("HTTP")), false},
		"a TLS alert":      {"TLS is spoken there", false, 0x15030300, false},
		"a short welcome":  {"the client would read past its end", false, 16, false},
		"an answer":        {"it is a header", true, 16, true},
		"a long answer":    {"a large service has many names", true, maxAnswer, true},
		"too long":         {"it would cost all memory", true, maxAnswer + 1, false},
		"a short answer":   {"the client would panic", true, 15, false},
		"a very short one": {"nothing would be read of it, again and again", true, 0, false},
	}, func(t *testing.T, tc row) {
		f, server := pipe(t)
		f.welcomed.Store(tc.welcomed)
		go func() { _, _ = server.Write(binary.BigEndian.AppendUint32(nil, tc.length)) }()
		_, err := io.ReadFull(f, make([]byte, headerLength))
		if (err == nil) != tc.ok {
			t.Errorf("a length of %d: got error %v, want it taken: %t\nreason: %s", tc.length, err, tc.ok, tc.reason)
		}
	})
}

func TestFramedKeepsToFrames(t *testing.T) {
	t.Parallel()
	f, server := pipe(t)
	frame := append(binary.BigEndian.AppendUint32(nil, 40), make([]byte, 40)...)
	go func() {
		for _, b := range append(frame, frame...) {
			_, _ = server.Write([]byte{b})
		}
		_ = server.Close()
	}()
	for range 2 {
		for _, part := range []int{headerLength, 40} {
			if _, err := io.ReadFull(f, make([]byte, part)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := f.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: got error %v, want %v", err, io.EOF)
	}
}

// The client takes the deadline away when it has read how long the welcome is, and would wait for the rest forever.
func TestWelcomeIsAwaitedNoLongerThanAllowed(t *testing.T) {
	t.Parallel()
	f, server := pipe(t)
	f.welcomeBy = time.Now().Add(50 * time.Millisecond)
	go func() { _, _ = server.Write([]byte{0, 0, 0, 40}) }()
	expect.NoError(t, f.SetReadDeadline(time.Now().Add(time.Hour)))
	if _, err := io.ReadFull(f, make([]byte, headerLength)); err != nil {
		t.Fatal(err)
	}
	expect.NoError(t, f.SetReadDeadline(time.Time{}))
	read := make(chan error, 1)
	go func() {
		_, err := f.Read(make([]byte, 40))
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil {
			t.Error("got a welcome that was never sent")
		}
	case <-time.After(time.Minute):
		t.Error("still waiting for the rest of the welcome")
	}
}

func TestFramedKeepsFailedWritesFromTheClient(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		welcomed bool
		says     string // Read's error
		fails    bool   // Write
	}
	expect.Each(t, map[string]row{
		"before the welcome": {"no request waits yet, and the client tells what is wrong", false, "refuses the connection", true},
		"after it":           {"the client would answer a request twice, and hang", true, "closed pipe", false},
	}, func(t *testing.T, tc row) {
		f, _ := pipe(t)
		f.welcomed.Store(tc.welcomed)
		expect.NoError(t, f.Close())
		request := make([]byte, 8)
		if n, err := f.Write(request); (err != nil) != tc.fails || err == nil && n != len(request) {
			t.Errorf("Write: got %d and error %v, want an error: %t\nreason: %s", n, err, tc.fails, tc.reason)
		}
		_, err := f.Read(make([]byte, headerLength))
		expect.Error(t, tc.reason, err, tc.says)
	})
}

// unwritable is a connection on which the second write fails, which is the first after the client's greeting.
type unwritable struct {
	net.Conn
	writes int
}

func (u *unwritable) Write(p []byte) (int, error) {
	if u.writes++; u.writes == 2 {
		return 0, errors.New("broken pipe")
	}
	return u.Conn.Write(p)
}

// TestSessionOutlivesAFailedWrite has the second connection fail where the client authenticates again.
func TestSessionOutlivesAFailedWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		connections := 0
		w := newWire(t.Context(), nil, timeout)
		w.connect = func(string) (net.Conn, error) {
			client, server := net.Pipe()
			go drivertest.ServeZooKeeper(server, func(int, []byte) (int, []byte) { return noNode, nil })
			if connections++; connections == 2 {
				return &unwritable{Conn: client}, nil
			}
			return client, nil
		}
		s, err := newSessionOver(w, settings{
			servers: []string{"zk:2181"}, timeout: timeout, digest: []byte("me:secret"), log: slog.New(slog.DiscardHandler),
		})
		expect.NoError(t, err)
		defer func() {
			s.close()
			time.Sleep(time.Minute) // the client wants to tell a server
		}()
		ask := func() error {
			ctx := drivertest.Within(t, timeout)
			_, err := s.exists(ctx, "/services")
			return err
		}
		expect.NoError(t, ask())
		w.mu.Lock()
		first := w.current
		w.mu.Unlock()
		expect.NoError(t, first.Close())
		synctest.Wait()
		_ = ask() // the client drops it with the second connection, or sends it over the third
		synctest.Wait()
		expect.NoError(t, ask())
		expect.Equal(t, 3, connections, "connections, of which the second fails")
	})
}
