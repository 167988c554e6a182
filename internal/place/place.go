// Package place joins the place and the name of a service to the one key that it has outside of the drivers, and splits it again.
package place

import "strings"

// Join returns the key: the place, a slash and the name, or the name alone if the registry has no places.
func Join(place, name string) string {
	if place == "" {
		return name
	}
	return place + "/" + name
}

// Split returns the place and the name of a key in a registry with this template ([registry.Traits]). A place has as many slashes as the
// template, so a name can have slashes too. A key with too few is all name and has no place, and so is every key if the template is empty.
func Split(template, service string) (place, name string) {
	if template == "" {
		return "", service
	}
	slashes, inBraces := 1, false // a label's key may have one
	for _, c := range template {
		switch {
		case c == '{' || c == '}':
			inBraces = c == '{'
		case c == '/' && !inBraces:
			slashes++
		}
	}
	parts := strings.SplitN(service, "/", slashes+1)
	if len(parts) <= slashes {
		return "", service
	}
	return strings.Join(parts[:slashes], "/"), parts[slashes]
}
