package resync

import (
	"maps"
	"slices"
)

// approvals are a person's answers to what this process has asked. An answer to another leader is none: what it asked about may have
// come and gone since.
type approvals struct {
	// asked are the digests that can be answered, by registry: of removals that are held, and of an approval that is not used up.
	asked map[string][]string
	// given are the digests that a person has approved.
	given []string
	// spent were given, and count no more until they are withdrawn and given again. Nil before a person's digests were read once.
	spent map[string]bool
}

// take replaces what a person has given.
func (a *approvals) take(digests []string) (isNew bool, spent []string) {
	first, before := a.spent == nil, a.given
	if first {
		a.spent = map[string]bool{}
	}
	maps.DeleteFunc(a.spent, func(digest string, _ bool) bool { return !slices.Contains(digests, digest) })
	a.given = nil
	for _, digest := range digests {
		if first || a.spent[digest] || !a.isAsked(digest) {
			a.spent[digest] = true
			spent = append(spent, digest)
			continue
		}
		a.given = append(a.given, digest)
		isNew = isNew || !slices.Contains(before, digest)
	}
	return isNew, spent
}

// open replaces what is asked of a registry. What was given and is asked no more is used up.
func (a *approvals) open(registry string, digests []string) {
	if a.asked == nil {
		a.asked = map[string][]string{}
	}
	a.asked[registry] = digests
	a.useUp()
}

// keep forgets the registries that are not kept.
func (a *approvals) keep(kept func(registry string) bool) {
	maps.DeleteFunc(a.asked, func(registry string, _ []string) bool { return !kept(registry) })
	a.useUp()
}

func (a *approvals) useUp() {
	a.given = slices.DeleteFunc(a.given, func(digest string) bool {
		used := !a.isAsked(digest)
		if used {
			a.spent[digest] = true
		}
		return used
	})
}

func (a *approvals) isAsked(digest string) bool {
	for _, digests := range a.asked {
		if slices.Contains(digests, digest) {
			return true
		}
	}
	return false
}

func (a *approvals) counts(digest string) bool { return slices.Contains(a.given, digest) }
