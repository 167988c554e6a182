package app

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
)

func TestShortNotes(t *testing.T) {
	t.Parallel()
	recorder := events.NewFakeRecorder(1)
	short := &shortNotes{recorder}
	short.Eventf(&corev1.Pod{}, nil, corev1.EventTypeWarning, "RegistryUnavailable", "Reconcile", "%s", strings.Repeat("100% down; ", 400))
	told := <-recorder.Events
	note := strings.TrimPrefix(told, "Warning RegistryUnavailable ")
	if len(note) > maxNote || !strings.HasPrefix(note, "100% down; 100% down; ") {
		t.Errorf("the note has %d bytes, want at most %d: %q", len(note), maxNote, note)
	}
}

func TestShortenKeepsRunesWhole(t *testing.T) {
	t.Parallel()
	for _, note := range []string{"", "short", strings.Repeat("x", maxNote), strings.Repeat("x", 5000), strings.Repeat("é", 5000), "x" + strings.Repeat("€", 5000)} {
		got := shorten(note)
		if len(got) > maxNote || !utf8.ValidString(got) {
			t.Errorf("%d bytes became %d, valid %t", len(note), len(got), utf8.ValidString(got))
		}
		if len(note) <= maxNote && got != note {
			t.Errorf("%q became %q", note, got)
		}
	}
}
