package shorten

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMessageKeepsRunesAndTheEnd(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "short", strings.Repeat("x", MaxMessage), strings.Repeat("x", 5000), strings.Repeat("é", 5000), "x" + strings.Repeat("€", 5000),
		strings.Repeat("x", 200_000) + ": set another",
	} {
		got := Message(text)
		switch {
		case len(got) > MaxMessage || !utf8.ValidString(got):
			t.Errorf("%d bytes became %d, valid %t", len(text), len(got), utf8.ValidString(got))
		case len(text) <= MaxMessage && got != text:
			t.Errorf("%q became %q", text, got)
		case strings.HasSuffix(text, ": set another") && !strings.HasSuffix(got, ": set another"):
			t.Errorf("the remedy at the end is lost: %q", got)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	if got := Quote("a\n"); got != strconv.Quote("a\n") {
		t.Errorf("got %s", got)
	}
	if got := Quote("x" + strings.Repeat("€", 1000)); len(got) > 2*MaxQuoted || !strings.HasSuffix(got, `"…`) || !utf8.ValidString(got) {
		t.Errorf("got %d bytes: %s", len(got), got)
	}
}
