package lifecycle

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/place"
)

// maxRecorded is how many handlers are read: each is compared with the workload's. Of instances, as many are read as [MaxRecord] lets be
// written.
const maxRecorded = 500

// AnnotationRecord holds the [Record]:
//
//	{"version":1,"stamp":{"uid":"4f5c…","timestamp":"2026-11-27T10:00:00Z","state":"PreparingDelete"},"want":"Absent",
//	 "outSince":"2026-11-27T10:00:02Z","instances":[{"registry":"consul","service":"web","address":"10.0.0.1","port":8080}],
//	 "handlers":[{"label":"rollcall.dev/pre-delete","value":"true"}]}
const AnnotationRecord = "rollcall.dev/registration"

// Record is what was last acknowledged: a hint, since the patch may have failed after the call, and a tenant can write it.
type Record struct {
	// Version rises when a field changes its meaning.
	Version int   `json:"version"`
	Stamp   Stamp `json:"stamp"`
	// Want was acknowledged for all Instances.
	Want Want `json:"want"`
	// OutSince is when they were taken out, if they were. With InService only some are out: another registry failed.
	OutSince *time.Time `json:"outSince,omitempty"`
	// InSince is when the pod came into rotation, if its weight had to grow.
	InSince time.Time `json:"inSince,omitzero"`
	// NeverInService, as far as known. Only true is written, so older records keep their meaning.
	NeverInService bool `json:"neverInService,omitempty"`
	// Detached: the pod was taken out since its CloneSet had lost it. It stays out if that CloneSet goes too.
	Detached  bool  `json:"detached,omitempty"`
	Instances []Key `json:"instances,omitempty"`
	// Unfound are applications' instances that nobody has found yet.
	Unfound []Key `json:"unfound,omitempty"`
	// Handlers can be released even after the workload drops them.
	Handlers []Handler `json:"handlers,omitempty"`
}

// Key identifies an entry among those of a pod.
type Key struct {
	Registry string  `json:"registry"`
	Writer   Writer  `json:"writer,omitempty"`
	Service  Service `json:"service"`
	Address  string  `json:"address"`
	Port     int     `json:"port"`
}

// Service is a service as a registry has it: in one with places, its place and its name, joined by package place.
type Service string

// Writer writes an entry. Two can each have one at the same endpoint.
type Writer string

// Rollcall only takes an Application's entry out of rotation and puts it back.
const (
	Rollcall    Writer = ""
	Application Writer = "app"
)

// Source is one writer's entries in one registry.
type Source struct {
	Registry string
	Writer   Writer
}

func (s Source) String() string {
	if s.ByApp() {
		return s.Registry + " (by the application)"
	}
	return s.Registry
}

// ByApp reports whether applications write them.
func (s Source) ByApp() bool { return s.Writer == Application }

// Source returns the entry's source.
func (i Key) Source() Source { return Source{Registry: i.Registry, Writer: i.Writer} }

// ByApp reports whether an application writes the entry.
func (i Key) ByApp() bool { return i.Writer == Application }

// By returns another writer's entry at the same endpoint.
func (i Key) By(w Writer) Key {
	i.Writer = w
	return i
}

func (i Key) valid() bool {
	return i.Registry != "" && (i.Writer == Rollcall || i.ByApp()) && i.Service != "" && i.Address != "" && i.Port >= 1
}

// Compare orders keys.
func (i Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(i.Registry, other.Registry), cmp.Compare(i.Writer, other.Writer), cmp.Compare(i.Service, other.Service),
		cmp.Compare(i.Address, other.Address), cmp.Compare(i.Port, other.Port))
}

// Coverage is which entries a registry's list can have. What lies outside is not known. The zero value covers all.
type Coverage struct {
	// Template is the PlaceTemplate of [registry.Traits].
	Template string
	// Places are the places that count, and whether each was listed.
	Places map[string]bool
}

// Has reports whether an entry of the service would have been listed.
func (c Coverage) Has(service Service) bool {
	listed, _ := c.of(service)
	return listed
}

// Misses reports whether the place of the service counts, and was not listed.
func (c Coverage) Misses(service Service) bool {
	listed, counts := c.of(service)
	return counts && !listed
}

// Unlisted counts the places that were not listed.
func (c Coverage) Unlisted() (n int) {
	for _, listed := range c.Places {
		if !listed {
			n++
		}
	}
	return n
}

func (c Coverage) of(service Service) (listed, counts bool) {
	if c.Template == "" {
		return true, true
	}
	at, _ := place.Split(c.Template, string(service))
	listed, counts = c.Places[at]
	return listed, counts
}

// Stamp is one stay of a pod in a state. Each move has a new timestamp, in seconds; State tells faster moves apart.
type Stamp struct {
	UID       types.UID `json:"uid"`
	Timestamp string    `json:"timestamp"`
	State     string    `json:"state"`
}

// StampOf returns the pod's current stamp.
func StampOf(pod *Pod) Stamp {
	return Stamp{UID: pod.UID, Timestamp: pod.Annotations[appspub.LifecycleTimestampKey], State: string(State(pod))}
}

// RecordOf returns the pod's record. Garbage and another pod's are none.
func RecordOf(pod *Pod) Record {
	text, found, err := Written(pod.Annotations, AnnotationRecord)
	if !found || err != nil {
		return Record{}
	}
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Stamp.UID != pod.UID || !r.valid() {
		return Record{}
	}
	return r.inOurVersion()
}

// inOurVersion keeps of a later version only what to undo; a partial stamp acknowledges nothing.
func (r Record) inOurVersion() Record {
	switch {
	case r.Version == 0:
		r.Version = 1
	case r.Version > recordVersion:
		r.Stamp, r.OutSince, r.InSince = Stamp{UID: r.Stamp.UID}, nil, time.Time{}
	}
	return r
}

// Exists reports whether there is a record.
func (r Record) Exists() bool { return r.Stamp.UID != "" }

// WasInService reports whether clients were ever given the pod.
func (r Record) WasInService() bool { return r.Exists() && (r.Want == InService || !r.NeverInService) }

// Fresh reports whether the record is of the pod's present stay.
func (r Record) Fresh(pod *Pod) bool { return r.Exists() && r.Stamp == StampOf(pod) }

// Lacks reports whether it must list an entry before all registries have acknowledged:
//
//	in Normal     the pod counts among its [Peers] by the record
//	has a record  the next manager takes the pod out only if it lists
//	other pods    no: the next manager waits for lists
func (r Record) Lacks(pod *Pod, at Key) bool {
	return (Counts(pod) || r.Exists()) && (!r.WasInService() || !slices.Contains(r.Instances, at))
}

// sameBut compares all but the stamp.
func (r Record) sameBut(other Record) bool {
	return r.Version == other.Version && r.Want == other.Want && sameTime(r.OutSince, other.OutSince) &&
		r.InSince.Equal(other.InSince) && r.NeverInService == other.NeverInService && r.Detached == other.Detached &&
		slices.Equal(r.Instances, other.Instances) && slices.Equal(r.Unfound, other.Unfound) && slices.Equal(r.Handlers, other.Handlers)
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
	if len(r.Handlers) > maxRecorded || len(r.Unfound) > len(r.Instances) {
		return false
	}
	return !slices.ContainsFunc(r.Handlers, func(h Handler) bool { return (h.Label == "") == (h.Finalizer == "") }) &&
		!slices.ContainsFunc(r.Instances, func(i Key) bool { return !i.valid() })
}

// NewRecord returns the record of an acknowledgement, the same for the same facts.
func NewRecord(pod *Pod, hooks Hooks, want Want, instances []Key, outSince *time.Time) Record {
	if want == InService {
		outSince = nil
	}
	sorted := slices.Clone(instances)
	slices.SortFunc(sorted, Key.Compare)
	return Record{
		Version: recordVersion, Stamp: StampOf(pod), Want: want, OutSince: outSince, Instances: sorted, Handlers: hooks.all(),
	}
}
