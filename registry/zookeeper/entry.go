package zookeeper

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// typePermanent is Curator's service type of a persistent node.
	typePermanent = "PERMANENT"

	// What Spring Cloud Zookeeper's StatusConstants say.
	statusKey          = "instance_status"
	statusUp           = "UP"
	statusOutOfService = "OUT_OF_SERVICE"

	springClass = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"
	// classKey is where Curator's Jackson looks for the payload's class, mapClass what it writes for a map.
	classKey = "@class"
	mapClass = "java.util.LinkedHashMap"

	// maxEntry bounds an entry, in bytes. A server closes the connection over which more than its jute.maxbuffer comes, by
	// default a megabyte, and with it all other calls under way.
	maxEntry = 256 << 10
)

// document is an entry as Curator's JsonInstanceSerializer writes it, in its order.
type document struct {
	Name                string          `json:"name"`
	ID                  string          `json:"id"`
	Address             string          `json:"address"`
	Port                int             `json:"port"`
	SSLPort             *int            `json:"sslPort"`
	Payload             json.RawMessage `json:"payload"`
	RegistrationTimeUTC int64           `json:"registrationTimeUTC"` //nolint:tagliatelle // Curator's name
	ServiceType         string          `json:"serviceType"`
	URISpec             *uriSpec        `json:"uriSpec"`
	// Enabled is left out unless an option asks for it: readers older than Curator 4 know no such field (CURATOR-275).
	Enabled *bool `json:"enabled,omitempty"`
	// Metadata is Rollcall's. Readers since Curator 4 skip it.
	Metadata map[string]string `json:"metadata,omitempty"`
}

type uriSpec struct {
	Parts []uriPart `json:"parts"`
}

type uriPart struct {
	Value    string `json:"value"`
	Variable bool   `json:"variable"`
}

// springPayload is Spring Cloud Zookeeper's ZookeeperInstance, with the class that Curator's Jackson asks for.
type springPayload struct {
	Class    string            `json:"@class"`
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Metadata map[string]string `json:"metadata"`
}

// encode returns an entry of this state.
func (o Options) encode(in registry.Instance, state registry.State, registeredAt int64) ([]byte, error) {
	doc := document{
		Name: in.Service, ID: idOf(in), Address: in.Address, Port: in.Port,
		Payload: json.RawMessage("null"), RegistrationTimeUTC: registeredAt, ServiceType: typePermanent, URISpec: uriOf(in),
	}
	if address := driverkit.InURL(in.Address); o.Payload == payloadSpring && address != in.Address { // its clients make URLs of it as it is
		doc.Address, doc.URISpec = address, uriOf(registry.Instance{})
	}
	if o.Payload == payloadSpring && in.Metadata["secure"] == "true" { // its clients use https if there is such a port
		doc.SSLPort = &doc.Port
	}
	if o.OutOfRotation == outEnabled {
		enabled := state == registry.InService
		doc.Enabled = &enabled
	}
	if err := o.describe(&doc, in, state); err != nil {
		return nil, err
	}
	raw, err := marshal(doc)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxEntry {
		return nil, fmt.Errorf("the entry would have %d bytes, more than %d: give the instance less metadata", len(raw), maxEntry)
	}
	return raw, nil
}

// describe puts metadata and ownership tag into what the option sets.
func (o Options) describe(doc *document, in registry.Instance, state registry.State) (err error) {
	meta := in.Meta()
	switch o.Payload {
	case payloadMap:
		// Jackson would make an object of the class that a tenant wrote there.
		if _, has := meta[classKey]; has {
			return fmt.Errorf("metadata must not have the key %q with payload map", classKey)
		}
		meta[classKey] = mapClass
		doc.Payload, err = marshal(meta)
	case payloadSpring:
		if _, has := meta[statusKey]; has {
			return fmt.Errorf("metadata must not have the key %q with payload spring: it holds the entry's state", statusKey)
		}
		meta[statusKey] = statusUp
		if state != registry.InService {
			meta[statusKey] = statusOutOfService
		}
		doc.Payload, err = marshal(springPayload{Class: springClass, ID: doc.ID, Name: in.Service, Metadata: meta})
	default:
		doc.Metadata = meta
	}
	return err
}

// uriOf is what Spring Cloud writes: {scheme}://{address}:{port}. Without it its readers have an empty URI.
func uriOf(in registry.Instance) *uriSpec {
	before, after := "://", ":"
	if strings.Contains(in.Address, ":") {
		before, after = "://[", "]:"
	}
	return &uriSpec{Parts: []uriPart{
		{"scheme", true},
		{before, false},
		{"address", true},
		{after, false},
		{"port", true},
	}}
}

// marshal leaves <, > and & as they are, as Jackson does.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("encoding the entry: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// decode reads the entry of a service with an id, whichever options it was written with. It reports false for what is not
// Rollcall's.
func decode(service, id string, raw []byte) (e registry.Entry, registeredAt int64, ours bool) {
	address, port, ours := parseID(id)
	if !ours {
		return registry.Entry{}, 0, false
	}
	var doc document
	if err := json.Unmarshal(raw, &doc); err != nil {
		return registry.Entry{}, 0, false
	}
	meta, status, err := doc.describes()
	if err != nil || meta[registry.MetaUID] == "" {
		return registry.Entry{}, 0, false
	}
	// The place decides which entry it is, whatever its content is.
	e = registry.Entry{Instance: registry.Instance{Service: service, Address: address, Port: port}, State: registry.InService}
	e.SetMeta(meta)
	if doc.Enabled != nil && !*doc.Enabled || status != "" && !strings.EqualFold(status, statusUp) {
		e.State = registry.OutOfService
	}
	return e, doc.RegistrationTimeUTC, true
}

// decodeForeign reads what clients are given of a service by a node that this driver does not change, another's or one with the cluster's
// ownership tag at another ID: Curator's clients at its port, Spring's at its sslPort if it has one.
func decodeForeign(service, id, cluster string, raw []byte) (entries []registry.Entry) {
	var doc document
	if json.Unmarshal(raw, &doc) != nil || doc.Address == "" || doc.Enabled != nil && !*doc.Enabled {
		return nil
	}
	meta, status, _ := doc.describes() // an application's payload may be anything
	if !driverkit.IsForeignTo(cluster, meta) || status != "" && !strings.EqualFold(status, statusUp) {
		return nil
	}
	for _, port := range []*int{&doc.Port, doc.SSLPort} {
		if port != nil && *port != 0 {
			entries = append(entries, driverkit.Tagged(driverkit.Foreign(service, doc.Address, *port), meta, "node "+service+slash+id))
		}
	}
	return entries
}

// describes returns metadata and mark from wherever they stand, and Spring's status.
func (d document) describes() (meta map[string]string, status string, err error) {
	if d.Metadata != nil {
		return d.Metadata, "", nil
	}
	var spring springPayload
	if err := json.Unmarshal(d.Payload, &spring); err == nil && spring.Class == springClass {
		meta = maps.Clone(spring.Metadata)
		status = meta[statusKey]
		delete(meta, statusKey)
		return meta, status, nil
	}
	if err := json.Unmarshal(d.Payload, &meta); err != nil {
		return nil, "", errors.New("the payload holds no metadata")
	}
	delete(meta, classKey)
	return meta, "", nil
}
