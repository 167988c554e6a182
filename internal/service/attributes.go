package service

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/shorten"
	"github.com/rollcall-dev/rollcall/registry"
)

// MaxWeight of an instance.
const MaxWeight = 10000

// Consul's service meta allows 64 pairs (some for [registry.Instance.Meta] and drivers), keys of 128 bytes, values of 512. Stricter
// registries refuse by themselves.
const (
	maxMetadata    = 50
	maxWritten     = 2 * maxMetadata // with the removals of the configuration's pairs
	maxKeyLength   = 128
	maxValueLength = 512
)

// Consul does not limit tags; a router's rule can be long.
const (
	maxTags      = 50
	maxTagLength = 1024
)

const metadataHelp = `set "key=value", or several with commas: "version=v1,team=a"`

const tagsHelp = `set "tag", or several with commas: "primary,http"; use \, for a comma within a tag`

// Node is where a pod runs, as far as known.
type Node struct {
	Name   string
	Zone   string
	Region string
	// Unread: only its name is known, for want of the right.
	Unread bool
}

// Attributes are for clients.
type Attributes struct {
	// Weight is 1 to MaxWeight; 0 means not set.
	Weight int
	Zone   string
	// Tags are sorted and unique. Like Metadata, nil if empty.
	Tags     []string
	Metadata map[string]string
	WarmUp   time.Duration
}

// AttributesOf joins all errors. The metadata weight and zone are attributes of their own, for which registries have places:
// "weight=100,version=v1" is a weight of 100 and one pair.
func (r Rules) AttributesOf(s Subject) (Attributes, error) {
	tags, tagsErr := r.tagsOf(s)
	metadata, metadataErr := r.metadataOf(s)
	weight, weightErr := weightOf(metadata[registry.MetaWeight])
	warmUp, warmUpErr := DurationOf(s.Annotations, AnnotationWarmUp, r.WarmUp)
	if warmUp > 0 && weight == 0 && weightErr == nil {
		weightErr = errors.New("warm-up needs a weight to grow to: set the same for all instances of the service, such as " +
			`weight: "100" in service.metadata or weight=100 in annotation ` + AnnotationMetadata)
	}
	if err := errors.Join(tagsErr, metadataErr, weightErr, warmUpErr, r.nodeUnread(s)); err != nil {
		return Attributes{}, err
	}
	a := Attributes{Weight: weight, Zone: cmp.Or(metadata[registry.MetaZone], s.Node.Zone), Tags: tags, WarmUp: warmUp}
	delete(metadata, registry.MetaWeight)
	delete(metadata, registry.MetaZone)
	if len(metadata) > maxMetadata {
		return Attributes{}, fmt.Errorf("annotation %s and service.metadata give %d pairs: use at most %d", AnnotationMetadata,
			len(metadata), maxMetadata)
	}
	if len(metadata) > 0 {
		a.Metadata = metadata
	}
	return a, nil
}

// nodeUnread refuses placeholders whose values are not known: they are not empty.
func (r Rules) nodeUnread(s Subject) error {
	if !s.Node.Unread {
		return nil
	}
	asks := func(t ValueTemplate) bool {
		return strings.Contains(string(t), "{"+placeholderZone+"}") || strings.Contains(string(t), "{"+placeholderRegion+"}")
	}
	if slices.ContainsFunc(r.Tags, asks) || slices.ContainsFunc(slices.Collect(maps.Values(r.Metadata)), asks) {
		return errors.New("service.tags or service.metadata has {zone} or {region}, and Rollcall may not read nodes: grant it the right to " +
			"list and watch nodes by a ClusterRole, or remove the placeholder")
	}
	return nil
}

// Warmed returns the part of the weight that a pod has which has been in rotation since then, and when it grows next; zero for never. It is
// 1 % at first, and each tenth of the time adds a tenth. A beginning in the future counts as none, except that the clock of the process
// that noted it may be a tenth ahead.
func (a Attributes) Warmed(since, now time.Time) (weight int, grows time.Duration) {
	in, tenth := now.Sub(since), a.WarmUp/10
	if in >= 10*tenth || in < -tenth {
		return a.Weight, 0
	}
	in = max(in, 0)
	tenths := in / tenth
	return max(a.Weight*int(tenths)/10, a.Weight/100, 1), tenth - in%tenth
}

// Shared returns the weight of one of n pods that get percent of the traffic together, of which others get the rest. The heavier of the two
// have the full weight, and more only if no smaller weights are close to the shares.
func (a Attributes) Shared(percent, n, others int) int {
	if others == 0 || a.Weight == 0 {
		return a.Weight
	}
	own, other := percent*others, (100-percent)*n
	near := min(0.5, float64(min(percent, 100-percent))/10)
	for full := range fulls(a.Weight) {
		mine, theirs := ratio(own, other, full)
		if got := 100 * float64(mine*n) / float64(mine*n+theirs*others); math.Abs(got-float64(percent)) <= near {
			return mine
		}
	}
	mine, _ := ratio(own, other, MaxWeight)
	return mine
}

// fulls are the weights that the heavier pods may have, the best first.
func fulls(full int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for weight := full; weight > 0; weight-- {
			if !yield(weight) {
				return
			}
		}
		for weight := full + 1; weight <= MaxWeight; weight++ {
			if !yield(weight) {
				return
			}
		}
	}
}

// ratio returns weights from 1 to full that are nearest to a:b.
func ratio(a, b, full int) (int, int) {
	least := func(small, large int) int { return max((2*full*small+large)/(2*large), 1) }
	if a >= b {
		return full, least(b, a)
	}
	return least(a, b), full
}

// weightOf returns 0 for nothing.
func weightOf(written string) (int, error) {
	if written == "" {
		return 0, nil
	}
	weight, err := strconv.ParseUint(written, 10, 16)
	if err != nil || weight == 0 || weight > MaxWeight {
		return 0, fmt.Errorf("metadata %s: %s is not a weight: use a whole number from 1 to %d in annotation %s or service.metadata",
			registry.MetaWeight, shorten.Quote(written), MaxWeight, AnnotationMetadata)
	}
	return int(weight), nil
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
	own, _, err := parsed(s.Annotations, AnnotationTags, parseTags)
	if err != nil {
		return nil, err
	}
	tags = append(tags, own...)
	tags = slices.DeleteFunc(tags, func(tag string) bool { return tag == "" })
	slices.Sort(tags)
	if tags = slices.Compact(tags); len(tags) > maxTags {
		return nil, fmt.Errorf("annotation %s and service.tags give %d tags: use at most %d", AnnotationTags, len(tags), maxTags)
	}
	return tags, nil
}

func parseTags(written string) ([]string, error) {
	const comma = "\x00" // stands for one within a tag
	tags, err := itemsOf(strings.ReplaceAll(written, `\,`, comma), maxTags, "tags", tagsHelp)
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
	pairs, _, err := parsed(s.Annotations, AnnotationMetadata, func(written string) (map[string]string, error) {
		pairs, err := parseMetadata(written)
		if err == nil {
			err = ownAddresses(pairs, s)
		}
		return pairs, err
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(metadata, pairs)
	maps.DeleteFunc(metadata, func(_, value string) bool { return value == "" })
	return metadata, nil
}

// ownAddresses refuses pairs by which clients would go where the pod's author likes.
func ownAddresses(pairs map[string]string, s Subject) error {
	own := []string{stableName(s)}
	if s.Status != nil {
		if s.Status.PodIP == "" {
			return nil // it is not registered yet
		}
		own = append(own, s.Status.PodIP)
		for _, ip := range s.Status.PodIPs {
			own = append(own, ip.IP, "["+ip.IP+"]") // some clients need IPv6 in brackets
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		if value := pairs[key]; registry.AddressMeta(key) && value != "" && !slices.Contains(own, value) {
			return fmt.Errorf("clients take the value of %s for an address, and %s is not the pod's own: leave it out, or have %s set in "+
				"service.metadata of the configuration", key, shorten.Quote(value), key)
		}
	}
	return nil
}

// parseMetadata returns an empty value for a key to remove, as in "team=".
func parseMetadata(written string) (map[string]string, error) {
	items, err := itemsOf(written, maxWritten, "pairs", metadataHelp)
	if err != nil {
		return nil, err
	}
	pairs := make(map[string]string, len(items))
	for _, item := range items {
		key, value, found := cutPair(item)
		if !found {
			return nil, fmt.Errorf("%s is not a key and a value: %s; a value can't contain a comma", shorten.Quote(item), metadataHelp)
		}
		if err := CheckMetadataKey(key); err != nil {
			return nil, err
		}
		if err := checkText("the value of "+key, value, maxValueLength); err != nil {
			return nil, err
		}
		if _, twice := pairs[key]; twice {
			return nil, fmt.Errorf("the key %s occurs twice: remove one", key)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// CheckMetadataKey refuses keys that clients can't read or that ownership tags use, but not [registry.MetaZone] and [registry.MetaWeight].
func CheckMetadataKey(key string) error {
	switch {
	case len(key) > maxKeyLength:
		return fmt.Errorf("the key has %d bytes: use at most %d", len(key), maxKeyLength)
	case !keys.MatchString(key):
		return fmt.Errorf("%s is not a key: use letters, digits, - _ or . that begin with a letter", shorten.Quote(key))
	case key != registry.MetaZone && key != registry.MetaWeight && registry.ReservedMeta(key):
		return fmt.Errorf("key %s is written by Rollcall itself: choose another key", key)
	}
	return nil
}

// keys are valid XML names.
var keys = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)

// ValueTemplate is a tag or value such as "{label:version}-{zone}".
type ValueTemplate string

// ParseTagTemplate parses "version-{label:version}".
func ParseTagTemplate(s string) (ValueTemplate, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("set a text for the tag, or remove the entry")
	}
	if err := checkText("the tag", s, maxTagLength); err != nil {
		return "", err
	}
	return ValueTemplate(s), checkValueTemplate(s)
}

// ParseValueTemplate parses "{label:version}".
func ParseValueTemplate(s string) (ValueTemplate, error) {
	if s == "" {
		return "", errors.New("set a text for the value, or remove the key")
	}
	if err := checkText("the value", s, maxValueLength); err != nil {
		return "", err
	}
	return ValueTemplate(s), checkValueTemplate(s)
}

// CheckMetadata refuses a value that no pod can have, such as a weight of "heavy", and an address that a pod's author could choose.
func CheckMetadata(key string, value ValueTemplate) error {
	if registry.AddressMeta(key) && chosenByAuthor(string(value)) {
		return errors.New("clients take this value for an address, and whoever writes pods chooses {label:KEY}, {pod} and {workload}: use " +
			"another placeholder, or end the value with a domain, as in {pod}.example.com")
	}
	if key != registry.MetaWeight || strings.Contains(string(value), "{") {
		return nil
	}
	_, err := weightOf(string(value))
	return err
}

// chosenByAuthor reports whether what a pod's author writes decides which host a value is. Below a domain it does not.
func chosenByAuthor(value string) bool {
	author := strings.Contains(value, "{"+labelPrefix) || strings.Contains(value, "{"+placeholderPod+"}") ||
		strings.Contains(value, "{"+placeholderWorkload+"}")
	return author && !strings.HasPrefix(value[strings.LastIndex(value, "}")+1:], ".")
}

func checkValueTemplate(s string) error {
	return checkTemplate(s, placeholderNamespace, placeholderWorkload, placeholderNode, placeholderZone, placeholderRegion, placeholderPod,
		placeholderPodIP, placeholderPodIPv4, placeholderPodIPv6, placeholderHostIP, placeholderSubdomain)
}

// valueOf is empty if any placeholder is: half a value is worse than none.
func (t ValueTemplate) valueOf(s Subject) string {
	value, empty := render(string(t), s)
	if len(empty) > 0 {
		return ""
	}
	return value
}
