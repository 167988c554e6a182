package config

import (
	"bytes"
	gojson "encoding/json"
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

	"github.com/rollcall-dev/rollcall/internal/service"
)

// config completes the document with the defaults and checks all of it. The Config is of use only without problems.
func (d *document) config(limits Limits) (*Config, field.ErrorList) {
	v := &validator{}
	c := &Config{
		Cluster:    v.cluster(d.Cluster),
		Namespaces: v.namespaces(d.Namespaces),
		Hooks: Hooks{
			Owned:        v.owned(d.Hooks.Owned),
			NewlyCreated: v.newlyCreated(d.Hooks.NewlyCreated),
		},
		Service:        v.service(d.Service),
		Drain:          v.duration(field.NewPath("drain"), d.Drain, DefaultDrain, 0),
		Unready:        v.oneOf(field.NewPath("unready"), d.Unready, DefaultUnready, "Keep"),
		PanicThreshold: v.percent(field.NewPath("panicThreshold"), d.PanicThreshold, DefaultPanicThreshold),
		Resync:         v.resync(d.Resync),
		single:         d.Registries == nil,

		OnRegistryFailure: v.onRegistryFailure(d.OnRegistryFailure),
		Guard:             v.oneOf(field.NewPath("guard"), d.Guard, GuardAuto, GuardAlways, GuardNever),
	}
	v.registries(c, d, limits)
	return c, v.problems
}

// validator collects what is wrong.
type validator struct {
	problems field.ErrorList
}

func (v *validator) add(err *field.Error) {
	v.problems = append(v.problems, err)
}

func (v *validator) cluster(name string) string {
	path := field.NewPath("cluster")
	if name == "" {
		v.add(field.Required(path, "name this cluster, such as prod-1: it marks what Rollcall writes into the registry"))
		return ""
	}
	if problems := validation.IsValidLabelValue(name); len(problems) > 0 {
		v.add(field.Invalid(path, name,
			"write at most 63 letters, digits, - _ or . that begin and end with a letter or digit"))
	}
	return name
}

func (v *validator) namespaces(names []string) []string {
	path := field.NewPath("namespaces")
	sorted := slices.Sorted(slices.Values(names))
	for i, name := range names {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			v.add(field.Invalid(path.Index(i), name, "write the name of a namespace; an empty list means all"))
		}
		if slices.Contains(names[:i], name) {
			v.add(field.Duplicate(path.Index(i), name))
		}
	}
	return sorted
}

func (v *validator) options(path *field.Path, raw gojson.RawMessage) gojson.RawMessage {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if raw[0] != '{' {
		v.add(field.TypeInvalid(path, field.OmitValueType{}, "write an object with the driver's options"))
	}
	return raw
}

func (v *validator) owned(patterns []string) []string {
	path := field.NewPath("hooks", "owned")
	if len(patterns) == 0 {
		v.add(field.Required(path, `list the handlers that Rollcall sets and clears, by key or by whole domain as "example.com/*"`))
	}
	for i, pattern := range patterns {
		v.uniqueKey(path.Index(i), pattern, patterns[:i], checkOwned(pattern))
	}
	return patterns
}

func (v *validator) newlyCreated(keys []string) []string {
	path := field.NewPath("hooks", "newlyCreated")
	for i, key := range keys {
		v.uniqueKey(path.Index(i), key, keys[:i], checkKey(key))
	}
	return keys
}

// uniqueKey adds the problem with a key, if there is one, and refuses a key that stands before it too.
func (v *validator) uniqueKey(path *field.Path, key string, before []string, problem string) {
	if problem != "" {
		v.add(field.Invalid(path, key, problem))
	}
	if slices.Contains(before, key) {
		v.add(field.Duplicate(path, key))
	}
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
	owner, _, _ := strings.Cut(key, "/")
	switch {
	case reserved(owner):
		return "belongs to Kubernetes or OpenKruise: claim a key of your own domain"
	case owner == "rollcall.dev":
		return "belongs to Rollcall: claim a key of your own domain"
	}
	return ""
}

// checkKey returns what is wrong with a label's key, or nothing.
func checkKey(key string) string {
	if len(validation.IsQualifiedName(key)) > 0 {
		return "write a label's or finalizer's key, such as example.com/registered"
	}
	return ""
}

// reserved reports whether a domain's finalizers are others' work, which an owner of the whole would remove.
func reserved(domain string) bool {
	for _, owner := range []string{"kubernetes.io", "k8s.io", "kruise.io"} {
		if domain == owner || strings.HasSuffix(domain, "."+owner) {
			return true
		}
	}
	return false
}

func (v *validator) service(d serviceDocument) Service {
	path := field.NewPath("service")
	text := d.Name
	if text == "" {
		text = DefaultServiceName
	}
	name, err := service.ParseNameTemplate(text)
	if err != nil {
		v.add(field.Invalid(path.Child("name"), text, err.Error()))
	}
	s := Service{
		Name: name, SharedAcrossNamespaces: d.SharedAcrossNamespaces,
		Allowed: v.allowed(path.Child("allowed"), d.Allowed), Metadata: v.metadata(path.Child("metadata"), d.Metadata),
	}
	if d.Port != nil {
		s.Port = *d.Port
		if err := service.CheckPort(s.Port); err != nil {
			v.add(field.Invalid(path.Child("port"), s.Port,
				"write a number from 1 to 65535, or leave it out for the first container port"))
		}
	}
	return s
}

func (v *validator) metadata(path *field.Path, written map[string]gojson.RawMessage) map[string]service.MetadataTemplate {
	var templates map[string]service.MetadataTemplate
	for _, key := range slices.Sorted(maps.Keys(written)) {
		at := path.Key(key)
		if err := service.CheckMetadataKey(key); err != nil {
			v.add(field.Invalid(at, key, err.Error()))
		}
		var text string
		problems, ok := unmarshal(written[key], &text, at)
		if v.problems = append(v.problems, problems...); !ok {
			continue
		}
		value, err := service.ParseMetadataTemplate(text)
		if err != nil {
			v.add(field.Invalid(at, text, err.Error()))
		}
		if templates == nil {
			templates = map[string]service.MetadataTemplate{}
		}
		templates[key] = value
	}
	return templates
}

func (v *validator) resync(d resyncDocument) Resync {
	path := field.NewPath("resync")
	return Resync{
		Interval:    v.duration(path.Child("interval"), d.Interval, DefaultResync, time.Second),
		MaxRemovals: v.maxRemovals(path.Child("maxRemovals"), d.MaxRemovals),
	}
}

// maxRemovals reads a number or a percentage.
func (v *validator) maxRemovals(path *field.Path, written any) intstr.IntOrString {
	if written == nil {
		return intstr.FromString(DefaultMaxRemovals)
	}
	switch value := written.(type) {
	case int64:
		if value >= 0 && value <= math.MaxInt32 {
			return intstr.FromInt32(int32(value))
		}
	case string:
		digits, percent := strings.CutSuffix(value, "%")
		if n, err := strconv.ParseUint(digits, 10, 8); percent && err == nil && n <= 100 {
			return intstr.FromString(strconv.FormatUint(n, 10) + "%")
		}
	}
	v.add(field.Invalid(path, written, `write how many entries one resync may remove: a percentage of the entries that this cluster owns, `+
		`from "0%" to "100%", or a number without quotes`))
	return intstr.FromString(DefaultMaxRemovals)
}

// duration reads a duration that is least or more; nothing written is def.
func (v *validator) duration(path *field.Path, written any, def, least time.Duration) time.Duration {
	if written == nil {
		return def
	}
	text, isText := written.(string)
	d, err := time.ParseDuration(text)
	if !isText || err != nil {
		v.add(field.Invalid(path, written, fmt.Sprintf(`write a duration with its unit, such as "%s"`, def)))
		return def
	}
	if d < least {
		v.add(field.Invalid(path, text, fmt.Sprintf(`write "%s" or more`, least)))
	}
	return d
}
