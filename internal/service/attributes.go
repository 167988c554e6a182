package service

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// MaxWeight is the largest weight of an instance.
const MaxWeight = 10000

// What an instance may carry fits into Consul's service meta: 64 pairs, keys of 128 bytes and values of 512
// (metaMaxKeyPairs and the constants beside it in Consul's agent/structs). Of the pairs up to eight are
// [registry.Instance.Meta]'s own, and a driver may need some. Registries that allow still less refuse it themselves.
const (
	maxMetadata    = 50
	maxKeyLength   = 128
	maxValueLength = 512
)

// What an instance may have in tags. Consul has no bound; a router's rule in a tag is long.
const (
	maxTags      = 50
	maxTagLength = 1024
)

const metadataHelp = `write "key=value", several with commas: "version=v1,team=a"`

const tagsHelp = `write "tag", several with commas: "primary,http"; a comma within a tag is written as \,`

// Node is where a pod runs. What is not known is empty.
type Node struct {
	Name string
	// Zone and Region are what the node's labels topology.kubernetes.io/zone and topology.kubernetes.io/region say.
	Zone   string
	Region string
}

// Attributes are what an instance carries beside its address, for clients.
type Attributes struct {
	// Weight is 1 to MaxWeight, 0 where nothing was said.
	Weight int
	// Zone is empty where nothing is known.
	Zone string
	// Tags are sorted, without duplicates, and nil rather than empty.
	Tags []string
	// Metadata is nil rather than empty.
	Metadata map[string]string
}

// AttributesOf returns the attributes of s. The error says all that is wrong with them.
func (r Rules) AttributesOf(s Subject) (Attributes, error) {
	weight, weightErr := weightOf(s.Annotations)
	zone, zoneErr := zoneOf(s)
	tags, tagsErr := r.tagsOf(s)
	metadata, metadataErr := r.metadataOf(s)
	if err := errors.Join(weightErr, zoneErr, tagsErr, metadataErr); err != nil {
		return Attributes{}, err
	}
	return Attributes{Weight: weight, Zone: zone, Tags: tags, Metadata: metadata}, nil
}

func weightOf(annotations map[string]string) (int, error) {
	written, ok := annotations[AnnotationWeight]
	if !ok {
		return 0, nil
	}
	weight, err := strconv.ParseUint(strings.TrimSpace(written), 10, 16)
	if err != nil || weight == 0 || weight > MaxWeight {
		return 0, fmt.Errorf("annotation %s: %q is not a weight: write a whole number from 1 to %d", AnnotationWeight, written,
			MaxWeight)
	}
	return int(weight), nil
}

func zoneOf(s Subject) (string, error) {
	written, ok := s.Annotations[AnnotationZone]
	if !ok {
		return s.Node.Zone, nil
	}
	zone := strings.TrimSpace(written)
	if zone == "" {
		return "", fmt.Errorf("annotation %s is empty: write the name of a zone, or remove the annotation", AnnotationZone)
	}
	if err := checkText("the zone", zone, maxValueLength); err != nil {
		return "", fmt.Errorf("annotation %s: %w", AnnotationZone, err)
	}
	return zone, nil
}

func (r Rules) tagsOf(s Subject) ([]string, error) {
	var tags []string
	for _, template := range r.Tags {
		tag := template.valueOf(s)
		if err := checkText("the tag", tag, maxTagLength); err != nil {
			return nil, fmt.Errorf("service.tags %q: %w", template, err)
		}
		tags = append(tags, tag)
	}
	if written, ok := s.Annotations[AnnotationTags]; ok {
		own, err := parseTags(written)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AnnotationTags, err)
		}
		tags = append(tags, own...)
	}
	tags = slices.DeleteFunc(tags, func(tag string) bool { return tag == "" })
	slices.Sort(tags)
	if tags = slices.Compact(tags); len(tags) > maxTags {
		return nil, fmt.Errorf("annotation %s and service.tags give %d tags: write at most %d", AnnotationTags, len(tags), maxTags)
	}
	return tags, nil
}

func parseTags(written string) ([]string, error) {
	const comma = "\x00" // stands for one within a tag
	tags, err := itemsOf(strings.ReplaceAll(written, `\,`, comma), tagsHelp)
	if err != nil {
		return nil, err
	}
	for i := range tags {
		tags[i] = strings.ReplaceAll(tags[i], comma, ",")
		if err := checkText("the tag", tags[i], maxTagLength); err != nil {
			return nil, err
		}
	}
	return tags, nil
}

func (r Rules) metadataOf(s Subject) (map[string]string, error) {
	metadata := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(r.Metadata)) {
		value := r.Metadata[key].valueOf(s)
		if err := checkText("the value", value, maxValueLength); err != nil {
			return nil, fmt.Errorf("service.metadata[%s] %q: %w", key, r.Metadata[key], err)
		}
		metadata[key] = value
	}
	if written, ok := s.Annotations[AnnotationMetadata]; ok {
		pairs, err := parseMetadata(written)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", AnnotationMetadata, err)
		}
		maps.Copy(metadata, pairs)
	}
	maps.DeleteFunc(metadata, func(_, value string) bool { return value == "" })
	if len(metadata) > maxMetadata {
		return nil, fmt.Errorf("annotation %s and service.metadata give %d pairs: write at most %d", AnnotationMetadata,
			len(metadata), maxMetadata)
	}
	if len(metadata) == 0 {
		return nil, nil
	}
	return metadata, nil
}

// parseMetadata returns an empty value for a key that the pod removes.
func parseMetadata(written string) (map[string]string, error) {
	items, err := itemsOf(written, metadataHelp)
	if err != nil {
		return nil, err
	}
	pairs := make(map[string]string, len(items))
	for _, item := range items {
		key, value, found := cutPair(item)
		if !found {
			return nil, fmt.Errorf("%q is not a key and a value: %s; a value can't contain a comma", item, metadataHelp)
		}
		if err := errors.Join(CheckMetadataKey(key), checkText("the value of "+key, value, maxValueLength)); err != nil {
			return nil, err
		}
		if _, twice := pairs[key]; twice {
			return nil, fmt.Errorf("the key %s occurs twice: remove one", key)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// CheckMetadataKey refuses a key that a registry's readers could not take, and one that Rollcall writes itself.
func CheckMetadataKey(key string) error {
	switch {
	case len(key) > maxKeyLength:
		return fmt.Errorf("the key has %d bytes: write at most %d", len(key), maxKeyLength)
	case !keys.MatchString(key):
		return fmt.Errorf("%q is not a key: write letters, digits, - _ or . that begin with a letter", key)
	case key == registry.MetaZone:
		return fmt.Errorf("key %s is written by Rollcall itself: set annotation %s", key, AnnotationZone)
	case key == registry.MetaWeight:
		return fmt.Errorf("key %s is written by Rollcall itself: set annotation %s", key, AnnotationWeight)
	case registry.ReservedMeta(key):
		return fmt.Errorf("key %s is written by Rollcall itself: choose another key", key)
	}
	return nil
}

// keys can be names in all the forms in which registries give them out, XML among them.
var keys = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)

// ValueTemplate makes a tag or a value of metadata from a pod: literal text and the placeholders {namespace}, {workload}, {node},
// {zone}, {region} and {label:KEY}. Make one with [ParseValueTemplate] or [ParseTagTemplate].
type ValueTemplate string

// ParseTagTemplate parses "version-{label:version}". The error says which placeholders there are.
func ParseTagTemplate(s string) (ValueTemplate, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("write a text for the tag, or remove the entry")
	}
	if err := checkText("the tag", s, maxTagLength); err != nil {
		return "", err
	}
	return ValueTemplate(s), checkValueTemplate(s)
}

// ParseValueTemplate parses "{label:version}". The error says which placeholders there are.
func ParseValueTemplate(s string) (ValueTemplate, error) {
	if s == "" {
		return "", errors.New("write a text for the value, or remove the key")
	}
	if err := checkText("the value", s, maxValueLength); err != nil {
		return "", err
	}
	return ValueTemplate(s), checkValueTemplate(s)
}

func checkValueTemplate(s string) error {
	return checkTemplate(s, placeholderNamespace, placeholderWorkload, placeholderNode, placeholderZone, placeholderRegion)
}

// valueOf returns nothing where any placeholder is empty: half a value is worse than none.
func (t ValueTemplate) valueOf(s Subject) string {
	value, empty := render(string(t), s)
	if len(empty) > 0 {
		return ""
	}
	return value
}
