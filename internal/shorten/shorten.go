// Package shorten bounds what messages repeat of what others have written. It is pure.
package shorten

import (
	"strconv"
	"strings"
)

const (
	// MaxQuoted is how many bytes of a text a message quotes.
	MaxQuoted = 80
	// MaxMessage is how many bytes a message has: the API server refuses an Event with a note of more.
	MaxMessage = 1024

	more = " … "
	// kept of the end of a message, where its remedy is.
	kept = 300
)

// Quote is %q for a text that may be long.
func Quote(text string) string {
	if len(text) <= MaxQuoted {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:MaxQuoted], "")) + "…"
}

// Message returns the message, or its beginning and its end.
func Message(text string) string {
	if len(text) <= MaxMessage {
		return text
	}
	begin, end := text[:MaxMessage-kept-len(more)], text[len(text)-kept:]
	return strings.ToValidUTF8(begin, "") + more + strings.ToValidUTF8(end, "") // a cut may be in the middle of a rune
}
