package zookeeper

import (
	"encoding/binary"
	"net"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

const (
	deleteNode = 2
	badVersion = -103
)

// fakeTree is a ZooKeeper of memory: nodes with data and versions, without rights. It does what the driver asks of a real one.
type fakeTree struct {
	mu    sync.Mutex
	zxid  int64
	nodes map[string]*fakeNode
	asked map[int]int // how often, by the kind of request
}

type fakeNode struct {
	data         []byte
	version      int32
	czxid, pzxid int64
	children     map[string]bool
}

func newFakeTree(t testing.TB) (tree *fakeTree, endpoint string) {
	tree = &fakeTree{nodes: map[string]*fakeNode{"/": {children: map[string]bool{}}}, asked: map[int]int{}}
	return tree, drivertest.Accepting(t, "127.0.0.1", func(conn net.Conn) { drivertest.ServeZooKeeper(conn, tree.answer) })
}

// write makes or changes a node, and the folders above it.
func (f *fakeTree) write(at, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, c := range at {
		if c == '/' && i > 0 {
			f.create(at[:i], nil)
		}
	}
	if f.create(at, []byte(data)) != 0 {
		f.set(at, []byte(data), -1)
	}
}

func (f *fakeTree) remove(at string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delete(at, -1)
}

// count forgets what was asked so far.
func (f *fakeTree) count() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.asked)
}

func (f *fakeTree) create(at string, data []byte) int {
	parent := f.nodes[path.Dir(at)]
	switch {
	case parent == nil:
		return noNode
	case f.nodes[at] != nil:
		return nodeExists
	}
	f.zxid++
	f.nodes[at] = &fakeNode{data: data, czxid: f.zxid, pzxid: f.zxid, children: map[string]bool{}}
	parent.children[path.Base(at)], parent.pzxid = true, f.zxid
	return 0
}

func (f *fakeTree) check(at string, version int32) int {
	switch n := f.nodes[at]; {
	case n == nil:
		return noNode
	case version >= 0 && version != n.version:
		return badVersion
	}
	return 0
}

func (f *fakeTree) set(at string, data []byte, version int32) int {
	code := f.check(at, version)
	if code == 0 {
		f.zxid++
		f.nodes[at].data = data
		f.nodes[at].version++
	}
	return code
}

func (f *fakeTree) delete(at string, version int32) int {
	code := f.check(at, version)
	if code == 0 {
		f.zxid++
		parent := f.nodes[path.Dir(at)]
		delete(parent.children, path.Base(at))
		delete(f.nodes, at)
		parent.pzxid = f.zxid
	}
	return code
}

func (f *fakeTree) stat(at string) []byte {
	n := f.nodes[at]
	stat := binary.BigEndian.AppendUint64(nil, uint64(n.czxid))
	stat = append(stat, make([]byte, 24)...)
	stat = binary.BigEndian.AppendUint32(stat, uint32(n.version))
	stat = append(stat, make([]byte, 16)...)
	stat = binary.BigEndian.AppendUint32(stat, uint32(len(n.data)))
	stat = binary.BigEndian.AppendUint32(stat, uint32(len(n.children)))
	return binary.BigEndian.AppendUint64(stat, uint64(n.pzxid))
}

func (f *fakeTree) answer(kind int, of []byte) (code int, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[kind]++
	r := reader(of)
	if kind == multi {
		return 0, f.multi(&r)
	}
	at := string(r.bytes())
	switch kind {
	case create, createContainer:
		return f.create(at, r.bytes()), appendBytes(nil, at)
	case setData:
		data := r.bytes()
		code = f.set(at, data, r.int())
	default:
		code = f.check(at, -1)
	}
	if code != 0 {
		return code, nil
	}
	switch n := f.nodes[at]; kind {
	case getData:
		body = appendBytes(nil, string(n.data))
	case getChildren2:
		body = binary.BigEndian.AppendUint32(nil, uint32(len(n.children)))
		for name := range n.children {
			body = appendBytes(body, name)
		}
	}
	return 0, append(body, f.stat(at)...)
}

// multi makes all changes or none: no two of them are of one node.
func (f *fakeTree) multi(r *reader) (body []byte) {
	type change struct {
		kind    int
		at      string
		data    []byte
		version int32
	}
	var changes []change
	for {
		kind, done := int(r.int()), (*r)[0] != 0
		if *r = (*r)[5:]; done {
			break
		}
		c := change{kind: kind, at: string(r.bytes())}
		if kind == create || kind == setData {
			c.data = r.bytes()
		}
		if kind == create {
			for range r.int() { // rights
				r.int()
				r.bytes()
				r.bytes()
			}
		}
		c.version = r.int() // or flags
		changes = append(changes, c)
	}
	code, blame := 0, 0
	for i, c := range changes {
		code, blame = f.check(c.at, c.version), i
		if c.kind == create {
			code = map[bool]int{true: nodeExists, false: f.check(path.Dir(c.at), -1)}[f.nodes[c.at] != nil]
		}
		if code != 0 {
			break
		}
	}
	header := func(kind int, done byte) {
		body = append(binary.BigEndian.AppendUint32(body, uint32(int32(kind))), done, 0, 0, 0, 0)
	}
	for i, c := range changes {
		if code != 0 {
			header(-1, 0)
			body = binary.BigEndian.AppendUint32(body, uint32(int32(map[bool]int{true: code}[i == blame])))
			continue
		}
		header(c.kind, 0)
		switch c.kind {
		case create:
			f.create(c.at, c.data)
			body = appendBytes(body, c.at)
		case setData:
			f.set(c.at, c.data, c.version)
			body = append(body, f.stat(c.at)...)
		case deleteNode:
			f.delete(c.at, c.version)
		}
	}
	header(-1, 1)
	return body
}

// reader takes apart what the client has sent.
type reader []byte

func (r *reader) int() int32 {
	n := int32(binary.BigEndian.Uint32(*r))
	*r = (*r)[4:]
	return n
}

func (r *reader) bytes() []byte {
	n := max(r.int(), 0)
	some := []byte(strings.Clone(string((*r)[:n])))
	*r = (*r)[n:]
	return some
}

func appendBytes(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(text))), text...)
}
