package plugin

import (
	"io"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestOnlyYesAgrees: a person who adds anything has something else in mind.
func TestOnlyYesAgrees(t *testing.T) {
	t.Parallel()
	for answer, agrees := range map[string]bool{
		"yes\n": true, " yes \r\n": true, "yes": true, "": false, "\n": false, "y\n": false, "YES\n": false, "yes wait\n": false, "yes, no\n": false,
	} {
		o := &options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(answer), ErrOut: io.Discard}}
		if err := o.confirm(false, "The pod goes on.", "it was not released"); (err == nil) != agrees {
			t.Errorf("answer %q: got error %v, want none: %v", answer, err, agrees)
		}
	}
}
