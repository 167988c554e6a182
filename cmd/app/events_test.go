package app

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/rollcall-dev/rollcall/internal/shorten"
)

func TestShortNotes(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(1)
	short := &shortNotes{recorder}
	short.Eventf(&corev1.Pod{}, nil, corev1.EventTypeWarning, "RegistryUnavailable", "Reconcile", "%s", strings.Repeat("100% down; ", 400))
	told := <-recorder.Events
	note := strings.TrimPrefix(told, "Warning RegistryUnavailable ")
	if len(note) > shorten.MaxMessage || !strings.HasPrefix(note, "100% down; 100% down; ") {
		t.Errorf("the note has %d bytes, want at most %d: %q", len(note), shorten.MaxMessage, note)
	}
}
