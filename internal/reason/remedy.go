package reason

import "strings"

// remedyFollows begins a remedy in an Event.
const remedyFollows = ". What to do: "

// WithRemedy returns the note of an Event with the first sentence of what a person should do, unless the note is all that there is to know.
func (r Reason) WithRemedy(note string) string {
	if do := r.remedy(); do != "" {
		return strings.TrimSuffix(note, ".") + remedyFollows + do
	}
	return note
}

// WithoutRemedy returns a note as it was before [Reason.WithRemedy].
func WithoutRemedy(note string) string {
	note, _, _ = strings.Cut(note, remedyFollows)
	return note
}
