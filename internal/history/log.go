package history

import (
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Log writes the lines. The zero Log writes nothing.
type Log struct {
	logger logr.Logger
	fields []field
}

// field is one of [Line], by its name in the log. They are read once: looking for tags takes longer than the rest of a line.
type field struct {
	name  string
	index []int
}

func fieldsOf(of reflect.Type) (fields []field) {
	for _, f := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			fields = append(fields, field{name, f.Index})
		}
	}
	return fields
}

// New returns a Log that writes through the logger. It must keep every line: one that is missing can make a right release look wrong.
func New(logger logr.Logger) Log {
	return Log{logger.WithName(Name), fieldsOf(reflect.TypeFor[Line]())}
}

// Registered is for an entry that is in rotation from now on, of a pod in a lifecycle state.
func (l Log) Registered(pod Pod, entry Entry, state string, took time.Duration) {
	l.write(Line{Kind: Registered, Pod: pod, Entry: entry, State: state, Took: seconds(took)})
}

// TakenOut is for an entry that is out of rotation from now on.
func (l Log) TakenOut(pod Pod, entry Entry, took time.Duration) {
	l.write(Line{Kind: TakenOut, Pod: pod, Entry: entry, Took: seconds(took)})
}

// Removed is for an entry that the pod has no more. By is empty if a call for the pod removed it.
func (l Log) Removed(pod Pod, entry Entry, by string, took time.Duration) {
	l.write(Line{Kind: Removed, Pod: pod, Entry: entry, By: by, Took: seconds(took)})
}

// Release is what Released tells.
type Release struct {
	Hook, State, Rotation, By string

	Entries []Entry
	// Drain is the shortest that the release had to wait for.
	Drain time.Duration
	// Waited is how long OpenKruise has.
	Waited time.Duration
}

// Released is for a hook for which OpenKruise does not wait any more.
func (l Log) Released(pod Pod, r Release) {
	line := Line{
		Kind: Released, Pod: pod, Hook: r.Hook, State: r.State, Rotation: r.Rotation, By: r.By,
		DrainMin: seconds(r.Drain), Took: seconds(r.Waited),
	}
	for _, e := range r.Entries {
		line.Entries = append(line.Entries, e.Listed())
	}
	l.write(line)
}

// DrainBegun is for a pod that stays up for clients that have not noticed yet.
func (l Log) DrainBegun(pod Pod, since time.Time, least, most time.Duration) {
	l.write(Line{Kind: DrainBegun, Pod: pod, Since: since.UTC(), DrainMin: seconds(least), DrainMax: seconds(most)})
}

// DrainEnded is for a pod that need not stay up any longer.
func (l Log) DrainEnded(pod Pod, by, answer string, took time.Duration) {
	l.write(Line{Kind: DrainEnded, Pod: pod, By: by, Answer: answer, Took: seconds(took)})
}

// Renamed is for a registry that the entries know by its former name.
func (l Log) Renamed(registry, former string) {
	l.write(Line{Kind: Renamed, Entry: Entry{Registry: registry}, Former: former})
}

// Call is what Called tells.
type Call struct {
	Pod
	Entry

	Operation, Outcome string
	Err                error
	Took               time.Duration
}

// Calls reports whether Called writes anything.
func (l Log) Calls() bool { return l.logger.V(1).Enabled() }

// Called is for each call to a registry.
func (l Log) Called(c Call) {
	line := Line{Kind: Called, Pod: c.Pod, Entry: c.Entry, Operation: c.Operation, Outcome: c.Outcome, Took: seconds(c.Took)}
	if c.Err != nil {
		line.Error = c.Err.Error()
	}
	Log{l.logger.V(1), l.fields}.write(line)
}

// seconds have microseconds, which is what a fast registry takes.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e6 }

// write leaves out fields that do not apply.
func (l Log) write(line Line) {
	if l.logger.Enabled() {
		l.logger.Info(string(line.Kind), l.values(reflect.ValueOf(line))...)
	}
}

func (l Log) values(of reflect.Value) []any {
	values := make([]any, 0, 2*len(l.fields))
	for _, f := range l.fields {
		if value := of.FieldByIndex(f.index); !value.IsZero() {
			values = append(values, f.name, plain(value.Interface()))
		}
	}
	return values
}

// plain has no form that depends on the encoder.
func plain(value any) any {
	if at, is := value.(time.Time); is {
		return at.Format(time.RFC3339Nano)
	}
	return value
}
