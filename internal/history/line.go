// Package history has what Rollcall did to pods, as lines of the managers' logs: log.go writes them, read.go reads them from a log or a
// collector's export of it, and judge.go finds in them what must not have happened.
package history

import "time"

// Name is the logger's, by which the lines are found among others.
const Name = "history"

// Kind is a line's message.
type Kind string

// The kinds of lines.
const (
	// Registered, TakenOut and Removed: the registry has acknowledged what became of an entry.
	Registered Kind = "registered"
	TakenOut   Kind = "taken out"
	Removed    Kind = "removed"
	// Released: OpenKruise may continue.
	Released   Kind = "released"
	DrainBegun Kind = "drain begun"
	DrainEnded Kind = "drain ended"
	// Renamed: a registry has another name in the configuration than its entries have.
	Renamed Kind = "renamed"
	// Called is each call to a registry, at debug.
	Called Kind = "called"
)

// What By can be, besides what ends a drain.
const (
	// ByAcknowledgement, BySkip and ByProceedAfter release a hook.
	ByAcknowledgement = "acknowledgement"
	BySkip            = "skip"
	ByProceedAfter    = "proceedAfter"
	// ByResync removes an entry without a live pod.
	ByResync = "resync"
	// ByAnother: another pod has the application's entry now, and nothing was asked.
	ByAnother = "anotherPod"
)

// App writes an entry that its application registered.
const App = "app"

// What a pod must be when a hook is released.
const (
	In  = "in"
	Out = "out"
	// Gone is for a pod that goes, so its entries go too.
	Gone = "removed"
)

// Pod is whom a line is about. Its tags are the names of fields.
type Pod struct {
	Namespace string `json:"namespace,omitzero"`
	Name      string `json:"pod,omitzero"`
	UID       string `json:"uid,omitzero"`
	// Workload is KIND/NAME.
	Workload string `json:"workload,omitzero"`
	Revision string `json:"revision,omitzero"`
}

// Entry is one of a registry.
type Entry struct {
	Registry string `json:"registry,omitzero"`
	Service  string `json:"service,omitzero"`
	// Endpoint is ADDRESS:PORT.
	Endpoint string `json:"endpoint,omitzero"`
	// Writer is App, or empty for Rollcall.
	Writer string `json:"writer,omitzero"`
}

// Listed is how a release lists it.
func (e Entry) Listed() string {
	text := e.Registry + " " + e.Service + " " + e.Endpoint
	if e.Writer != "" {
		text += " " + e.Writer
	}
	return text
}

// Line is one line. A field that does not apply is zero, and is not written.
type Line struct {
	At   time.Time `json:"-"`
	Kind Kind      `json:"-"`

	Pod
	Entry

	// By is what released a hook, ended a drain, or removed an entry if no call for the pod did.
	By string `json:"by,omitzero"`
	// Took are seconds: of the call, since OpenKruise waits for the hook, or since the drain began.
	Took float64 `json:"took,omitzero"`

	// Hook and Rotation are of a release, and Rotation is what the pod must be. State is the pod's lifecycle state, also of Registered.
	Hook     string `json:"hook,omitzero"`
	State    string `json:"state,omitzero"`
	Rotation string `json:"rotation,omitzero"`
	// Entries are those that a release rests on.
	Entries []string `json:"entries,omitzero"`

	// Since is when the drain began, which may have been under another manager. DrainMin and DrainMax are seconds.
	Since    time.Time `json:"since,omitzero"`
	DrainMin float64   `json:"drainMin,omitzero"`
	DrainMax float64   `json:"drainMax,omitzero"`
	// Answer is the pod's last answer to whether it is idle.
	Answer string `json:"answer,omitzero"`

	// Former is the registry's former name.
	Former string `json:"former,omitzero"`

	// Operation, Outcome and Error are of a call.
	Operation string `json:"operation,omitzero"`
	Outcome   string `json:"outcome,omitzero"`
	Error     string `json:"error,omitzero"`

	// source tells the logs that were read apart.
	source int
}
