package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// APIVersion and Kind are those of a file without them. A later version of Rollcall can read it by them.
const (
	APIVersion = "rollcall.dev/v1alpha1"
	Kind       = "Configuration"
)

// read completes the file with the defaults, and checks all of it.
func (c *Config) read(o *object, limits Limits) {
	o.oneOf("apiVersion", APIVersion)
	o.oneOf("kind", Kind)
	c.Cluster = o.cluster("cluster", limits.ClusterUID)
	c.Namespaces, c.Lease = o.namespaces("namespaces"), o.lease()
	c.readRegistries(o, limits)
	o.object("hooks", func(o *object) {
		owned := o.keys("owned", checkOwned)
		c.Hooks = lifecycle.Ownership{Owned: owned, NewlyCreated: o.keys("newlyCreated", func(key string) string {
			if slices.Contains(owned, key) {
				return "is in hooks.owned too: remove it from one of them, since a handler holds a pod and newlyCreated keys hold nothing"
			}
			return checkMark(key)
		})}
	})
	o.object("service", func(o *object) { c.Service = o.service() })
	c.Drain = o.drain("drain")
	c.Service.WarmUp, c.Service.CountsAtEnd = o.warmUp("warmUp", c.Service.Metadata)
	o.object("unready", func(o *object) { c.UnreadyAfter = o.unreadyAfter("after") })
	c.PanicThreshold = o.percent("panicThreshold", 50)
	o.object("resync", func(o *object) {
		c.Resync = Resync{Interval: o.duration("interval", 0, time.Second), MaxRemovals: o.maxRemovals("maxRemovals", "20%")}
	})
	o.object("proceedAfter", func(o *object) {
		c.ProceedAfter = lifecycle.FailurePolicy{
			PreDelete: o.duration("preDelete", 0, time.Second), InPlaceUpdate: o.duration("inPlaceUpdate", 0, time.Second),
		}
	})
	c.Features = o.features()
}

// mostDamping keeps a slip from leaving dead pods in rotation.
const mostDamping = time.Minute

func (o *object) unreadyAfter(name string) time.Duration {
	after := o.duration(name, 0, 0)
	if after > mostDamping {
		o.invalid(name, after.String(), "use at most 1m: until then, clients are sent to a pod that does not answer")
	}
	return after
}

func (o *object) drain(name string) drain.Policy {
	policy, problems := drain.Read(o.at(name), o.any(name), o.unknown)
	o.problems = append(o.problems, problems...)
	o.inForce[name] = policy.Written()
	return policy
}

// warmUp reads a duration, or an object with one. The metadata must have a weight then.
func (o *object) warmUp(name string, metadata map[string]service.ValueTemplate) (warmUp time.Duration, countsAtEnd bool) {
	if duration, short := o.any(name).(string); short {
		o.fields[name] = map[string]any{"duration": duration}
	}
	o.object(name, func(o *object) {
		warmUp = o.duration("duration", 0, 0)
		countsAtEnd = o.oneOf("countsAs", "Start", "End") == "End"
	})
	if _, has := metadata[registry.MetaWeight]; warmUp > 0 && !has {
		o.invalid(name, warmUp.String(), `there is no weight to grow to: set service.metadata.weight, such as "100", and the same weight `+
			"for all other instances of the services")
	}
	return warmUp, countsAtEnd
}

const (
	// uidInName in a cluster's name is replaced by the UID of its namespace kube-system, and anyUID is as long as that is.
	uidInName = "{uid}"
	anyUID    = "00000000-0000-0000-0000-000000000000"
)

// cluster leaves the name as it is written if the UID is not to be read.
func (o *object) cluster(name string, readUID func() (string, error)) string {
	value := o.text(name)
	switch {
	case value == "":
		o.required(name, "set a name for this cluster, such as prod-1: it is in the ownership tag of each entry")
	case len(validation.IsValidLabelValue(strings.ReplaceAll(value, uidInName, anyUID))) > 0:
		o.invalid(name, value, `use at most 63 letters, digits, - _ or . that begin and end with a letter or digit; "{uid}" counts as 36`)
	case strings.Contains(value, uidInName) && readUID != nil:
		uid, err := readUID()
		if err != nil {
			o.invalid(name, value, fmt.Sprintf("the UID of the namespace kube-system could not be read: grant Rollcall the right to get that "+
				"namespace, or set a name without {uid}: %v", err))
		}
		value = strings.ReplaceAll(value, uidInName, uid)
	}
	return value
}

// namespaces reads a list of names, or a label selector.
func (o *object) namespaces(name string) service.Namespaces {
	if _, byLabel := o.any(name).(map[string]any); byLabel {
		return service.Namespaces{Selector: o.selector(name, "leave namespaces out")}
	}
	return service.Namespaces{Names: slices.Sorted(slices.Values(o.keys(name, func(namespace string) string {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return "set the name of a namespace; an empty list means all"
		}
		return ""
	})))}
}

// keys reads a list without duplicates. check returns what is wrong with one, or nothing.
func (o *object) keys(name string, check func(string) string) []string {
	keys := o.texts(name)
	for i, key := range keys {
		at := o.at(name).Index(i)
		if problem := check(key); problem != "" {
			o.add(field.Invalid(at, key, problem))
		}
		if slices.Contains(keys[:i], key) {
			o.add(field.Duplicate(at, key))
		}
	}
	return keys
}

// checkOwned returns what is wrong with a pattern, or nothing.
func checkOwned(pattern string) string {
	key := pattern
	domain, whole := strings.CutSuffix(pattern, "/*")
	if whole {
		key = domain + "/x"
	}
	if problem := checkKey(key); problem != "" {
		return problem + `, or a whole domain as "example.com/*"`
	}
	switch owner, _, _ := strings.Cut(key, "/"); {
	case reserved(owner):
		return "belongs to Kubernetes or OpenKruise: claim a key of your own domain"
	case owner+"/" == lifecycle.Domain:
		return "is Rollcall's in every configuration: leave it out"
	}
	return ""
}

// checkMark returns what is wrong with a key that Rollcall clears, or nothing.
func checkMark(key string) string {
	if problem := checkKey(key); problem != "" {
		return problem
	}
	switch owner, _, _ := strings.Cut(key, "/"); {
	case reserved(owner):
		return "belongs to Kubernetes or OpenKruise, and Rollcall would clear it: use a key of your own domain"
	case owner+"/" == lifecycle.Domain:
		return "is Rollcall's own handler, which newlyCreated would take away: use a key of your own domain"
	}
	return ""
}

// checkKey returns what is wrong with a label's key, or nothing.
func checkKey(key string) string {
	if len(validation.IsQualifiedName(key)) > 0 {
		return "set a label's or finalizer's key, such as example.com/registered"
	}
	return ""
}

// reserved reports whether a domain's finalizers are others' work, which an owner of the whole would remove.
func reserved(domain string) bool {
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "kruise.io"}, func(owner string) bool {
		return domain == owner || strings.HasSuffix(domain, "."+owner)
	})
}

func (o *object) service() service.Rules {
	var s service.Rules
	text := o.textOr("name", "{label:app}")
	var err error
	if s.Name, err = service.ParseNameTemplate(text); err != nil {
		o.invalid("name", text, err.Error())
	}
	if o.any("port") != nil {
		if s.Port = int(o.number("port", 1)); s.Port < 1 || s.Port > 65535 {
			o.invalid("port", s.Port, "set a number from 1 to 65535, or leave it out for the application's first container port")
		}
	}
	text = o.textOr("address", "PodIP")
	if s.Address, err = service.ParseAddress(text); err != nil {
		o.invalid("address", text, err.Error())
	}
	s.Networks = o.keys("networks", func(network string) string {
		if network == "" {
			return "set the name of a network, or NAMESPACE/NAME if it is not in the pods' namespace"
		}
		return ""
	})
	if o.any("networkAddresses") == nil {
		s.NetworkAddresses = service.PrivateRanges()
		o.inForce["networkAddresses"] = textsOf(s.NetworkAddresses)
	} else if s.NetworkAddresses = parseAll(o, "networkAddresses", service.ParseRange); len(s.NetworkAddresses) == 0 {
		o.invalid("networkAddresses", o.fields["networkAddresses"], "set one range or more, or leave it out for the private ranges")
	}
	s.Allowed = o.allowed("allowed")
	s.Tags = parseAll(o, "tags", service.ParseTagTemplate)
	s.Metadata = o.metadata("metadata")
	return s
}

func textsOf(ranges []service.Range) (all []any) {
	for _, r := range ranges {
		all = append(all, r.String())
	}
	return all
}

func (o *object) metadata(name string) map[string]service.ValueTemplate {
	var templates map[string]service.ValueTemplate
	written := o.mapping(name, wantObject)
	for _, key := range slices.Sorted(maps.Keys(written)) {
		at := o.at(name).Key(key)
		if err := service.CheckMetadataKey(key); err != nil {
			o.add(field.Invalid(at, key, err.Error()))
		}
		text, _ := as[string](o.validator, at, written[key], wantText)
		value, err := service.ParseValueTemplate(text)
		if err == nil {
			err = service.CheckMetadata(key, value)
		}
		if err != nil {
			o.addFirst(field.Invalid(at, text, err.Error()))
		}
		if templates == nil {
			templates = map[string]service.ValueTemplate{}
		}
		templates[key] = value
	}
	return templates
}

// maxRemovals reads a number or a percentage.
func (o *object) maxRemovals(name, def string) intstr.IntOrString {
	written := o.any(name)
	if written == nil {
		written = def
	}
	o.inForce[name] = written
	switch value := written.(type) {
	case int64:
		if value >= 0 && value <= math.MaxInt32 {
			return intstr.FromInt32(int32(value))
		}
	case string:
		if n, ok := percentage(value); ok && n >= 0 {
			return intstr.FromString(fmt.Sprintf("%d%%", n))
		}
	}
	o.invalid(name, o.fields[name], `set how many entries one resync can remove: a percentage of the entries that this cluster owns, `+
		`from "0%" to "100%", or a number without quotes`)
	return intstr.FromString(def)
}

// percent reads a whole share from 0% to 100%; nothing written is def.
func (o *object) percent(name string, def int) int {
	written := o.any(name)
	if written == nil {
		written = fmt.Sprintf("%d%%", def)
	}
	o.inForce[name] = written
	text, _ := written.(string)
	share, ok := percentage(text)
	if !ok || share < 0 {
		o.invalid(name, written, fmt.Sprintf(`use a whole share from "0%%" to "100%%", such as "%d%%"`, def))
	}
	return share
}

// percentage reads a whole share of at most 100%.
func percentage(text string) (share int, ok bool) {
	digits, isShare := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	return n, isShare && err == nil && n <= 100
}

// oneOf reads one of a few words; nothing written is the first.
func (o *object) oneOf(name string, words ...string) string {
	written := o.any(name)
	if written == nil {
		written = words[0]
	}
	o.inForce[name] = written
	text, _ := written.(string)
	if !slices.Contains(words, text) {
		o.add(field.NotSupported(o.at(name), fmt.Sprint(written), words))
	}
	return text
}

// duration reads a duration that is least or more; nothing written is def, and holds only if that is not 0.
func (o *object) duration(name string, def, least time.Duration) time.Duration {
	written := o.any(name)
	if written == nil && def == 0 {
		return 0
	}
	if written == nil {
		written = def.String()
	}
	o.inForce[name] = written
	text, _ := written.(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		o.invalid(name, written, fmt.Sprintf(`set a duration with its unit, such as "%s"`, max(def, least)))
		return def
	} else if d < least {
		o.invalid(name, text, fmt.Sprintf(`set "%s" or more`, least))
	}
	return d
}
