// Package suggest finds the word that a person meant who wrote another one.
package suggest

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// Nearest returns the known word that is most like word, the first of several, and nothing if none is near. Case does not count.
func Nearest(word string, known []string) string {
	lower := strings.ToLower(word)
	nearest, least := "", (len(lower)+2)/3 // two swapped letters are two edits, and a short word has few to spare
	for _, one := range known {
		if d := levenshtein.ComputeDistance(lower, strings.ToLower(one)); d < least || d == least && nearest == "" {
			nearest, least = one, d
		}
	}
	return nearest
}
