package checker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
)

// The annotations of a pod that say where it belongs and what clients are told, as users write them.
const (
	annotationServices   = "rollcall.dev/services"
	annotationRegistries = "rollcall.dev/registries"
	annotationAddress    = "rollcall.dev/address"
	annotationDrain      = "rollcall.dev/drain"
	annotationWarmUp     = "rollcall.dev/warm-up"
	annotationMetadata   = "rollcall.dev/metadata"
	annotationNetworks   = "k8s.v1.cni.cncf.io/network-status"
)

// Written is what the harness has written into the managers' configuration, as far as it decides what the registries must have of a pod.
type Written struct {
	// Usual is the registry of pods that choose none.
	Usual string
	// Books are the names under which the harness keeps some registries.
	Books map[string]string
	// Places are the labels that choose a pod's place, by the registries that have places.
	Places map[string]string
	// Metadata of every pod: a text, or {label:KEY}.
	Metadata map[string]string
}

// Attributes are what clients are told of a pod.
type Attributes struct {
	// Weight is all of it, 0 for none, and WarmUp is how long it grows.
	Weight   int
	WarmUp   time.Duration
	Metadata map[string]string
}

// Keys are the entries that the registries must have of a pod. Their address is empty until the pod has it.
func (w Written) Keys(pod *corev1.Pod) (all []Key) {
	for name := range strings.SplitSeq(cmp.Or(pod.Annotations[annotationRegistries], w.Usual), ",") {
		place := ""
		if label := w.Places[name]; label != "" {
			place = pod.Labels[label] + "/"
		}
		for pair := range strings.SplitSeq(pod.Annotations[annotationServices], ",") {
			service, port, _ := strings.Cut(pair, "=")
			number, err := strconv.Atoi(port)
			if err != nil {
				break
			}
			all = append(all, Key{
				Registry: cmp.Or(w.Books[name], name), UID: string(pod.UID), Service: place + service, Address: w.Address(pod), Port: number,
			})
		}
	}
	return all
}

// Address is the pod's own, or that on the network which it chooses.
func (Written) Address(pod *corev1.Pod) string {
	wanted, onNetwork := strings.CutPrefix(pod.Annotations[annotationAddress], "network/")
	if !onNetwork {
		return pod.Status.PodIP
	}
	var networks []struct {
		Name string
		IPs  []string
	}
	_ = json.Unmarshal([]byte(pod.Annotations[annotationNetworks]), &networks) // it has none yet
	for _, n := range networks {
		if n.Name == wanted && len(n.IPs) > 0 {
			return n.IPs[0]
		}
	}
	return ""
}

// Attributes are what the registries must tell clients of a pod.
func (w Written) Attributes(pod *corev1.Pod) *Attributes {
	pairs := map[string]string{}
	for key, text := range w.Metadata {
		pairs[key] = text
		if label, is := strings.CutPrefix(text, "{label:"); is {
			pairs[key] = pod.Labels[strings.TrimSuffix(label, "}")]
		}
	}
	for pair := range strings.SplitSeq(pod.Annotations[annotationMetadata], ",") {
		key, value, _ := strings.Cut(pair, "=")
		pairs[key] = value
	}
	a := Attributes{Metadata: pairs, WarmUp: durationOf(pod, annotationWarmUp)}
	a.Weight, _ = strconv.Atoi(pairs["weight"]) // 0 for none
	maps.DeleteFunc(pairs, func(key, value string) bool { return key == "weight" || value == "" })
	return &a
}

func durationOf(pod *corev1.Pod, key string) time.Duration {
	d, _ := time.ParseDuration(pod.Annotations[key]) // 0 without one
	return d
}

// DrainOf is the pod's own drain, or the one of the configuration.
func DrainOf(pod *corev1.Pod, configured time.Duration) time.Duration {
	if pod.Annotations[annotationDrain] == "" {
		return configured
	}
	return durationOf(pod, annotationDrain)
}

// IsReady reports the condition that the API server has.
func IsReady(pod *corev1.Pod) bool { return isTrue(pod, corev1.PodReady) }

// IsToEnd reports whether it is announced that the pod ends.
func IsToEnd(pod *corev1.Pod) bool { return isTrue(pod, corev1.DisruptionTarget) }

func isTrue(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

// Untrue says what an entry of a pod tells clients that is not so, or nothing. While the pod warms up, a part of its weight is right.
func (a Attributes) Untrue(in registry.Instance, warm bool) string {
	switch {
	case !maps.Equal(in.Metadata, a.Metadata):
		return fmt.Sprintf("metadata: it has %v and should have %v", in.Metadata, a.Metadata)
	case in.Weight > a.Weight, in.Weight < min(1, a.Weight), in.Weight != a.Weight && (warm || a.WarmUp == 0):
		return fmt.Sprintf("weight: it has not the weight %d", a.Weight)
	case in.Zone != "" || len(in.Tags) > 0:
		return fmt.Sprintf("metadata: it has the zone %q and the tags %q, and nobody has written any", in.Zone, in.Tags)
	default:
		return ""
	}
}

// most is the weight that a pod may have so long after it came into rotation: 1 % at first, and a tenth more after each tenth of the time.
func (a Attributes) most(after time.Duration) int {
	if after >= a.WarmUp {
		return a.Weight
	}
	tenths := int(10 * after / a.WarmUp) //nolint:mnd // tenths
	return max(1, a.Weight/100, a.Weight*tenths/10)
}

// warmSlack is for a beginning that a manager notes in whole seconds, and for calls on their way.
const warmSlack = 2 * time.Second

// overweight says that a call gives a pod more of its weight than it has earned, or nothing. The pod is given since its first call.
func (a Attributes) overweight(in registry.Instance, after time.Duration) string {
	if most := a.most(after + warmSlack); in.Weight > most {
		return fmt.Sprintf("with the weight %d, %s after the pod came into rotation: it warms up for %s, and has %d by then",
			in.Weight, after.Round(time.Millisecond), a.WarmUp, most)
	}
	return ""
}

// decideDescription finds a call that puts a pod where it does not belong, or that tells clients what is not so of it. It returns false
// while a later version of the pod, or a flip, may explain it. The caller holds the lock.
func (j *Journal) decideDescription(c *Call, now time.Time) bool {
	if now.Sub(c.Received) < watchLags+explainWithin {
		return false
	}
	if p := j.pods[c.Instance.UID]; p != nil {
		if why := j.misdescribed(p, c); why != "" {
			j.violate(p, c.Received, why)
		}
	}
	return true
}

// misdescribed holds a Register against what the pod was, at any moment that the manager may have seen.
func (j *Journal) misdescribed(p *podLog, c *Call) string {
	could := p.latestBetween(j.oldestReason(c.Received), c.Received.Add(watchLags))
	if len(could) == 0 || slices.ContainsFunc(could, func(s Sighting) bool { return s.Gap }) {
		return ""
	}
	if why := whereNot(c.Key(), could); why != "" {
		return fmt.Sprintf("where: call #%d registered %s, %s", c.number, c.Key(), why)
	}
	in := c.Instance
	if (types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}) != p.name || in.Cluster != j.Cluster {
		return fmt.Sprintf("where: call #%d registered %s as that of pod %s/%s of cluster %q",
			c.number, c.Key(), in.Namespace, in.Pod, in.Cluster)
	}
	why := ""
	for _, s := range could {
		if s.Told == nil {
			return ""
		}
		if why = s.Told.Untrue(c.Instance, false); why != "" {
			rule, text, _ := strings.Cut(why, ": ")
			why = fmt.Sprintf("%s: call #%d registered %s: %s", rule, c.number, c.Key(), text)
			continue
		}
		if why = s.Told.overweight(c.Instance, c.Received.Sub(p.inSince(c.Received))); why == "" {
			return ""
		}
		why = fmt.Sprintf("weight: call #%d registered %s %s", c.number, c.Key(), why)
	}
	return why
}

// whereNot says where a pod belongs that has none of these keys in any of its versions, or nothing.
func whereNot(k Key, could []Sighting) string {
	var all []string
	for _, s := range could {
		for _, one := range s.Keys {
			if one == k {
				return ""
			}
			all = append(all, one.String())
		}
	}
	slices.Sort(all)
	return "and the pod belongs to " + strings.Join(slices.Compact(all), ", ")
}

// inSince is when the first call came that put the pod in since its last hook was released, up to a time.
func (p *podLog) inSince(by time.Time) (since time.Time) {
	released := p.lastHook(by, false)
	since = by
	for _, c := range p.calls {
		if c.Op == Register && c.Received.After(released.at) && c.Received.Before(since) {
			since = c.Received
		}
	}
	return since
}

// latestBetween are the versions of the pod that were its latest at some moment between two times.
func (p *podLog) latestBetween(from, by time.Time) (all []Sighting) {
	for i, s := range p.sightings {
		over := i+1 < len(p.sightings) && p.sightings[i+1].At.Before(from)
		if !over && !p.changedAt(i).After(by) {
			all = append(all, s)
		}
	}
	return all
}
