package lifecycle

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxRecorded are the most instances, or handlers, of a record: the 50 services of a pod in five registries, at two addresses.
const maxRecorded = 500

// AnnotationRecord holds the record.
const AnnotationRecord = "rollcall.dev/registration"

// Record is what Rollcall last had acknowledged for a pod. It is a hint: the call may have succeeded and the patch
// failed, and a tenant can write it. The zero Record is none.
type Record struct {
	// Version is raised where a field changes its meaning. A version later than this program's, which a rollback of
	// Rollcall leaves behind, names instances and handlers, and acknowledges nothing.
	Version int `json:"version"`
	// Stamp identifies the stay in a state during which the record was written.
	Stamp Stamp `json:"stamp"`
	// Want is what the registry acknowledged for every instance.
	Want Want `json:"want"`
	// OutSince is when the acknowledgement came that took the instances out; nil while they are in service, and where
	// they never were. With InService it is when some of them were, while a registry failed that holds the rest.
	OutSince *time.Time `json:"outSince,omitempty"`
	// NeverInService: as far as is known, no registry ever had the pod in service. Only the exception is written, so a record of
	// before this field keeps its meaning.
	NeverInService bool `json:"neverInService,omitempty"`
	// Instances are those the acknowledgement was for.
	Instances []Key `json:"instances,omitempty"`
	// Unfound are those of them that applications write and that nobody has found in the registry yet.
	Unfound []Key `json:"unfound,omitempty"`
	// Handlers are the owned ones, so that they can be released when nothing names them any more.
	Handlers []Handler `json:"handlers,omitempty"`
}

// Key tells an entry of a pod from its others: the instance, in one registry, by one writer. Owner and UID are the pod's own.
type Key struct {
	// Registry is the registry's name in the configuration.
	Registry string `json:"registry"`
	Writer   Writer `json:"writer,omitempty"`
	Service  string `json:"service"`
	Address  string `json:"address"`
	Port     int    `json:"port"`
}

// Writer is who writes an entry. Two writers may each have one at the same place.
type Writer string

// The writers. An application that registers itself writes its entry, and Rollcall only takes it out of rotation and puts it back.
const (
	Rollcall    Writer = ""
	Application Writer = "app"
)

// Source is one writer's entries in one registry.
type Source struct {
	Registry string
	Writer   Writer
}

// String names them for a person.
func (s Source) String() string {
	if s.ByApp() {
		return s.Registry + " (by the application)"
	}
	return s.Registry
}

// ByApp reports whether an application writes them.
func (s Source) ByApp() bool { return s.Writer == Application }

// Source is where the instance's entry belongs.
func (i Key) Source() Source { return Source{Registry: i.Registry, Writer: i.Writer} }

// ByApp reports whether an application writes the entry.
func (i Key) ByApp() bool { return i.Writer == Application }

// By returns the entry of another writer at the same place.
func (i Key) By(w Writer) Key {
	i.Writer = w
	return i
}

// valid reports whether it names an instance at all.
func (i Key) valid() bool {
	return i.Registry != "" && (i.Writer == Rollcall || i.ByApp()) && i.Service != "" && i.Address != "" && i.Port >= 1
}

// Compare orders instances.
func (i Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(i.Registry, other.Registry), cmp.Compare(i.Writer, other.Writer), cmp.Compare(i.Service, other.Service),
		cmp.Compare(i.Address, other.Address), cmp.Compare(i.Port, other.Port))
}

// Stamp is one stay of one pod in one lifecycle state. Kruise writes a new timestamp with every move, so a scale-in that
// was cancelled and begun again has another one. The timestamp counts whole seconds, so the state is part of the stamp: a
// pod can make two moves within one second.
type Stamp struct {
	UID       types.UID `json:"uid"`
	Timestamp string    `json:"timestamp"`
	State     string    `json:"state"`
}

// StampOf returns the pod's current stamp.
func StampOf(pod *corev1.Pod) Stamp {
	return Stamp{UID: pod.UID, Timestamp: pod.Annotations[appspub.LifecycleTimestampKey], State: string(State(pod))}
}

// RecordOf reads the pod's record. Garbage, and a record of another pod, are none.
func RecordOf(pod *corev1.Pod) Record {
	text, found := pod.Annotations[AnnotationRecord]
	if !found {
		return Record{}
	}
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Stamp.UID != pod.UID || !r.valid() {
		return Record{}
	}
	return r.inOurVersion()
}

// inOurVersion keeps of a later version what it takes to undo: which instances and which handlers. Without the time and
// the state in its stamp, it is the record of no stay, and so it stands for no acknowledgement.
func (r Record) inOurVersion() Record {
	switch {
	case r.Version == 0:
		r.Version = 1
	case r.Version > recordVersion:
		r.Stamp, r.OutSince = Stamp{UID: r.Stamp.UID}, nil
	}
	return r
}

// Exists reports whether there is a record at all.
func (r Record) Exists() bool { return r.Stamp.UID != "" }

// WasInService reports whether clients were given the pod once, by what was acknowledged or listed.
func (r Record) WasInService() bool { return r.Exists() && (r.Want == InService || !r.NeverInService) }

// Fresh reports whether the record was written during the pod's present stay in its state.
func (r Record) Fresh(pod *corev1.Pod) bool { return r.Exists() && r.Stamp == StampOf(pod) }

// sameBut reports whether two records differ in nothing but the stamp.
func (r Record) sameBut(other Record) bool {
	return r.Version == other.Version && r.Want == other.Want && sameTime(r.OutSince, other.OutSince) &&
		r.NeverInService == other.NeverInService && slices.Equal(r.Instances, other.Instances) &&
		slices.Equal(r.Unfound, other.Unfound) && slices.Equal(r.Handlers, other.Handlers)
}

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

func (r Record) valid() bool {
	if r.Version < 0 || r.Want != InService && r.Want != OutOfService && r.Want != Absent {
		return false
	}
	if max(len(r.Instances), len(r.Unfound), len(r.Handlers)) > maxRecorded {
		return false
	}
	return !slices.ContainsFunc(r.Handlers, func(h Handler) bool { return (h.Label == "") == (h.Finalizer == "") }) &&
		!slices.ContainsFunc(r.Instances, func(i Key) bool { return !i.valid() })
}

// NewRecord returns the record of an acknowledgement, in a form that is the same for the same facts. What is in service is not out since
// any time.
func NewRecord(pod *corev1.Pod, hooks Hooks, want Want, instances []Key, outSince *time.Time) Record {
	if want == InService {
		outSince = nil
	}
	sorted := slices.Clone(instances)
	slices.SortFunc(sorted, Key.Compare)
	return Record{
		Version: recordVersion, Stamp: StampOf(pod), Want: want, OutSince: outSince, Instances: sorted, Handlers: hooks.all(),
	}
}
