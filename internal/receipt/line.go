package receipt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Kind is what a line is about.
type Kind string

// The kinds of lines. A chain starts with one Begin, and has an End where the manager stopped in order.
const (
	Begin Kind = "begin"
	// Leads: this manager compares the registry with the cluster from now on, as often as Seconds says; no more where that is 0.
	Leads Kind = "leads"
	// Renamed: the registry has entries that carry the name Former, which the configuration no longer has.
	Renamed Kind = "renamed"
	// Called is a change that a registry was asked for, and Told what it said when it was asked about an instance.
	Called Kind = "change"
	Told   Kind = "told"
	// Ran is a run of resync.
	Ran Kind = "resync"
	// Flip is a patch that set or cleared handlers, as the API server answered.
	Flip Kind = "flip"
	// Waits: a pod waits for this reason from now on, or for none.
	Waits Kind = "wait"
	End   Kind = "end"
)

// Acknowledged is the outcome of a change that the registry has acknowledged.
const Acknowledged = "ok"

// RemovalsBlocked is the outcome of a run that was complete but for removals that a person has to approve.
const RemovalsBlocked = "removals blocked"

// Entry is one instance of one pod in one registry, as far as it is known.
type Entry struct {
	Registry  string `json:"registry,omitempty"`
	Writer    string `json:"writer,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	Service   string `json:"service,omitempty"`
	Address   string `json:"address,omitempty"`
	Port      int    `json:"port,omitempty"`
}

// EntryOf is that of an instance in the registry of a name.
func EntryOf(name string, in registry.Instance) Entry {
	return Entry{
		Registry: name, Namespace: in.Namespace, Pod: in.Pod, UID: in.UID, Service: in.Service, Address: in.Address, Port: in.Port,
	}
}

// By returns the entry of another writer at the same place; empty for Rollcall.
func (e Entry) By(writer string) Entry {
	e.Writer = writer
	return e
}

// Key tells it from others.
func (e Entry) Key() Key { return Key{e.Registry, e.Writer, e.UID, e.Service, e.Address, e.Port} }

// Line is one line of a chain. Chain, Number, Lost, Torn and Continues are the writer's.
type Line struct {
	// Chain names the process that wrote the line, and Number counts its lines from 0.
	Chain  string `json:"chain"`
	Number int    `json:"number"`
	Kind   Kind   `json:"kind"`
	// Lost is how many lines before this one could not be written, and Torn says that the file ended within a line of the chain
	// before this one.
	Lost int  `json:"lost,omitempty"`
	Torn bool `json:"torn,omitempty"`
	// Continues says of a Begin that the file before this one has lines too.
	Continues bool `json:"continues,omitempty"`
	// Asked is when a call or a patch began, and At when its answer came, or when it was.
	Asked   time.Time `json:"asked,omitzero"`
	At      time.Time `json:"at"`
	Version string    `json:"version,omitempty"`
	Former  string    `json:"former,omitempty"`
	Entry
	// Operation is that of a change. Outcome is Acknowledged or what was wrong, also with a run.
	Operation Op     `json:"operation,omitempty"`
	Outcome   string `json:"outcome,omitempty"`
	// Says is the state that a registry told.
	Says string `json:"says,omitempty"`
	// Workload, Revision, State, Since, Ready and Deleting are the pod's. Those of a flip are from the API server's answer; those of a
	// change are what it rested on. Resync knows none. Ready is not of a pod that ends for certain, and
	// Deleting is also of one that has Failed or Succeeded, or is gone.
	Workload string    `json:"workload,omitempty"`
	Revision string    `json:"revision,omitempty"`
	State    string    `json:"state,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Ready    bool      `json:"ready,omitempty"`
	Deleting bool      `json:"deleting,omitempty"`
	// Instances are those that the pod has by what it says of itself.
	Instances []Entry `json:"instances,omitempty"`
	// Hooks are the workload's, and Set and Cleared the handlers that a flip changed. Excuse says why it waited for no acknowledgement.
	Hooks   Hooks    `json:"hooks,omitempty"`
	Set     []string `json:"set,omitempty"`
	Cleared []string `json:"cleared,omitempty"`
	Excuse  string   `json:"excuse,omitempty"`
	// Hook and Reason are why a pod waits.
	Hook   string `json:"hook,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Seconds is the pod's drain, or the interval of resync, which runs have too since the line that leads may be in a file that is gone.
	Seconds float64 `json:"seconds,omitempty"`
	// Missing are the entries that a run missed in a registry, and Gone those without a live pod that it had to remove.
	Missing []Entry `json:"missing,omitempty"`
	Gone    []Entry `json:"gone,omitempty"`
}

// rename gives a registry another name. Its slices are new ones, since a copy of the line may share those that it has.
func (l *Line) rename(former, now string) {
	renamed := func(e Entry) Entry {
		if e.Registry == former {
			e.Registry = now
		}
		return e
	}
	l.Entry = renamed(l.Entry)
	for _, entries := range []*[]Entry{&l.Instances, &l.Missing, &l.Gone} {
		*entries = slices.Clone(*entries)
		for i, e := range *entries {
			(*entries)[i] = renamed(e)
		}
	}
}

func (l *Line) duration() time.Duration { return time.Duration(l.Seconds * float64(time.Second)) }

// lineMark begins each line.
const lineMark = `{"chain":`

// sealMark stands between a line's content and its hash.
const sealMark = `,"hash":"`

// Seal returns the line as it is written, with its newline, and its hash, which is over the hash before it and the bytes that are
// written: no reader has to encode them again.
func Seal(before string, l *Line) (written []byte, hash string, err error) {
	content, err := json.Marshal(l)
	if err != nil {
		return nil, "", fmt.Errorf("encoding line %d: %w", l.Number, err)
	}
	content = content[:len(content)-1]
	hash = hashOf(before, content)
	return fmt.Appendf(content, "%s%s\"}\n", sealMark, hash), hash, nil
}

func hashOf(before string, content []byte) string {
	sum := sha256.Sum256(append([]byte(before), content...))
	return hex.EncodeToString(sum[:])
}

// What can be wrong with a log.
var (
	ErrAltered = errors.New("was altered: take the copy that was shipped elsewhere, and ask who can write the file")
	ErrCutOff  = errors.New("is cut off: read the whole file, or wait until the manager has written the line")
	ErrMissing = errors.New("is missing: read the rotated file too, or take the copy that was shipped elsewhere")
	ErrLost    = errors.New("could not be written: the metric rollcall_audit_lost_lines_total and the manager's log show why")
)

// FaultError says what is wrong with a log, and where: InLog counts all lines of the log from 1.
type FaultError struct {
	InLog  int
	Detail string
	Why    error
}

func (f *FaultError) Error() string {
	if f.Detail == "" {
		return fmt.Sprintf("line %d %v", f.InLog, f.Why)
	}
	return fmt.Sprintf("line %d: %s %v", f.InLog, f.Detail, f.Why)
}

// Unwrap is one of the errors above.
func (f *FaultError) Unwrap() error { return f.Why }

// chain has the hashes of its lines while it is read.
type chain []string

// Read returns the lines of a log, which may hold several chains and lines of anything else, and the first fault. Lines up to the
// fault are returned with it. A line that comes again counts once. A chain that lacks its last lines as a whole looks like one that
// goes on.
func Read(log []byte) (lines []Line, err error) {
	chains := map[string]chain{}
	torn := 0 // the line that the next one has to account for
	for i := 1; len(log) > 0; i++ {
		raw, rest, whole := bytes.Cut(log, []byte("\n"))
		log = rest
		if !bytes.HasPrefix(raw, []byte(lineMark)) {
			continue
		}
		if !whole {
			return lines, &FaultError{i, "", ErrCutOff}
		}
		l, hash, content, ok := open(raw)
		if torn > 0 && (!ok || !l.Torn && l.Lost == 0) {
			return lines, &FaultError{torn, "", ErrAltered}
		}
		if torn = 0; !ok {
			torn = i
			continue
		}
		read := chains[l.Chain]
		if err := read.follow(&l, hash, content, i); err != nil {
			return lines, err
		}
		if l.Number == len(read) {
			chains[l.Chain], lines = append(read, hash), append(lines, l)
		}
	}
	if torn > 0 {
		return lines, &FaultError{torn, "", ErrAltered}
	}
	return lines, nil
}

// Join returns a log with another copy behind it. Where a copy ends within a line, the next one has to have the rest of it, or all of
// it again; or the manager wrote no more than that, which its next line says.
func Join(log, copied []byte) ([]byte, error) {
	at := bytes.LastIndexByte(log, '\n') + 1
	last := log[at:]
	first, _, _ := bytes.Cut(copied, []byte("\n"))
	switch {
	case len(last) == 0, len(copied) == 0, json.Valid(slices.Concat(last, first)):
		return append(log, copied...), nil
	case !bytes.HasPrefix(last, []byte(lineMark)), json.Valid(last), bytes.Contains(first, []byte(`"torn":true`)):
	case bytes.HasPrefix(copied, last), bytes.Contains(copied, slices.Concat([]byte("\n"), last)):
		log = log[:at]
	default:
		return nil, &FaultError{bytes.Count(log, []byte("\n")) + 1, "", ErrCutOff}
	}
	return slices.Concat(log, []byte("\n"), copied), nil
}

func open(raw []byte) (l Line, hash string, content []byte, ok bool) {
	at := bytes.LastIndex(raw, []byte(sealMark))
	if at < 0 || !bytes.HasSuffix(raw, []byte(`"}`)) || at+len(sealMark) > len(raw)-2 {
		return l, "", nil, false
	}
	content, hash = raw[:at], string(raw[at+len(sealMark):len(raw)-2])
	return l, hash, content, json.Unmarshal(raw, &l) == nil
}

// follow checks a line against the one before it in its chain, and against itself where it was read already.
func (c chain) follow(l *Line, hash string, content []byte, inLog int) error {
	before := ""
	if l.Number > 0 && l.Number <= len(c) {
		before = c[l.Number-1]
	}
	switch {
	case l.Number > len(c):
		return &FaultError{inLog, fmt.Sprintf("line %d of chain %s before it", len(c), l.Chain), ErrMissing}
	case l.Number < 0, l.Number < len(c) && hash != c[l.Number], hash != hashOf(before, content), (l.Kind == Begin) != (l.Number == 0):
		return &FaultError{inLog, "", ErrAltered}
	case l.Lost > 0:
		return &FaultError{inLog, fmt.Sprintf("%d lines before it", l.Lost), ErrLost}
	}
	return nil
}
