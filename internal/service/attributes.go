package service

// PLACEHOLDER by the lead so that internal/controller compiles. Whoever has step 3 replaces the bodies and keeps (or
// changes, and mends internal/controller/observe.go and target.go) these signatures.

// Node is where a pod runs.
type Node struct{ Name, Zone, Region string }

// Attributes is what an instance carries besides its address.
type Attributes struct {
	Weight   int
	Zone     string
	Metadata map[string]string
}

// AttributesOf returns the attributes of s.
func (r Rules) AttributesOf(s Subject) (Attributes, error) {
	return Attributes{Zone: s.Node.Zone}, nil
}

// RegistriesOf returns the names of the registries of a pod with these annotations; known are all that there are.
func RegistriesOf(annotations map[string]string, defaults, known []string) ([]string, error) {
	return defaults, nil
}
