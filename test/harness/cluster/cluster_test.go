package cluster

import (
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestStages: each stage has a file and a word in pod-next.jq, and each file a stage.
func TestStages(t *testing.T) {
	t.Parallel()
	next, err := stageFiles.ReadFile("stages/pod-next.jq")
	expect.NoError(t, err)
	files := map[string]bool{"pod-next.jq": true}
	for _, s := range podStages() {
		_, err := s.document(string(next))
		expect.NoError(t, err)
		files["pod-"+s.name+".yaml"] = true
		if want := strconv.Quote(s.name); !strings.Contains(string(next), want) {
			t.Errorf("pod-next.jq never says %s", want)
		}
	}
	entries, err := stageFiles.ReadDir("stages")
	expect.NoError(t, err)
	for _, entry := range entries {
		if !files[entry.Name()] {
			t.Errorf("no stage uses %s", entry.Name())
		}
	}
}
