package service

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestAttributesOf(t *testing.T) {
	t.Parallel()
	annotated := func(key, value string) Subject { return Subject{Annotations: map[string]string{key: value}} }
	unread := Node{Name: "node-1", Unread: true}
	node := Node{Name: "node-1", Zone: "eu-1a", Region: "eu-1"}
	pairs := func(n int) string {
		var items []string
		for i := range n {
			items = append(items, fmt.Sprintf("k%d=v", i))
		}
		return strings.Join(items, ",")
	}
	type row struct {
		reason   string
		tags     []ValueTemplate
		metadata map[string]ValueTemplate
		subject  Subject
		want     Attributes
		wantErr  []string
	}
	expect.Each(t, map[string]row{
		"nothing":                   {reason: "nothing was said and nothing is known"},
		"the node's zone":           {reason: "the node knows where it is", subject: Subject{Node: node}, want: Attributes{Zone: "eu-1a"}},
		"a zone":                    {reason: "the annotation wins", subject: Subject{Node: node, Annotations: map[string]string{AnnotationMetadata: "zone= here "}}, want: Attributes{Zone: "here"}},
		"an empty zone":             {reason: "the pair is taken out, and the node's holds", metadata: map[string]ValueTemplate{"zone": "x"}, subject: Subject{Node: node, Annotations: map[string]string{AnnotationMetadata: "zone="}}, want: Attributes{Zone: "eu-1a"}},
		"a zone too long":           {reason: "Consul takes 512 bytes", subject: annotated(AnnotationMetadata, "zone="+strings.Repeat("z", 513)), wantErr: []string{AnnotationMetadata, "513 bytes", "at most 512"}},
		"a zone of dirt":            {reason: "a log would break", subject: annotated(AnnotationMetadata, "zone=a\nb"), wantErr: []string{AnnotationMetadata, "can't be printed"}},
		"a weight":                  {reason: "spaces do not matter", subject: annotated(AnnotationMetadata, " weight = 100 "), want: Attributes{Weight: 100}},
		"the least weight":          {reason: "it is the first that is allowed", subject: annotated(AnnotationMetadata, "weight=1"), want: Attributes{Weight: 1}},
		"the most weight":           {reason: "it is the last that is allowed", subject: annotated(AnnotationMetadata, "weight=10000"), want: Attributes{Weight: 10000}},
		"weight zero":               {reason: "out of service is said by hooks, not by weights", subject: annotated(AnnotationMetadata, "weight=0"), wantErr: []string{AnnotationMetadata, `"0"`, "from 1 to 10000"}},
		"too much weight":           {reason: "registries' ranges differ, and this fits into all", subject: annotated(AnnotationMetadata, "weight=10001"), wantErr: []string{"from 1 to 10000"}},
		"weight overflow":           {reason: "no int16 holds it", subject: annotated(AnnotationMetadata, "weight=99999999999999999999"), wantErr: []string{"from 1 to 10000"}},
		"negative weight":           {reason: "it means nothing", subject: annotated(AnnotationMetadata, "weight=-1"), wantErr: []string{"from 1 to 10000"}},
		"a broken weight":           {reason: "weights are relative, so whole numbers do", subject: annotated(AnnotationMetadata, "weight=0.5"), wantErr: []string{"whole number"}},
		"an empty weight":           {reason: "the pair is taken out", metadata: map[string]ValueTemplate{"weight": "5"}, subject: annotated(AnnotationMetadata, "weight="), want: Attributes{}},
		"warm-up":                   {reason: "spaces do not matter", subject: Subject{Annotations: map[string]string{AnnotationMetadata: "weight=100", AnnotationWarmUp: " 2m "}}, want: Attributes{Weight: 100, WarmUp: 2 * time.Minute}},
		"no warm-up":                {reason: "no weight is needed", subject: annotated(AnnotationWarmUp, "0s"), want: Attributes{}},
		"warm-up without a weight":  {reason: "there is nothing to have a part of", subject: annotated(AnnotationWarmUp, "2m"), wantErr: []string{"warm-up needs a weight", `weight: "100" in service.metadata`}},
		"warm-up of no duration":    {reason: "minutes?", subject: annotated(AnnotationWarmUp, "2"), wantErr: []string{AnnotationWarmUp, `"2" is not a duration`}},
		"a weight by label":         {reason: "a rule gives it to each pod", metadata: map[string]ValueTemplate{"weight": "{label:weight}", "zone": "{region}-x"}, subject: Subject{Node: node, Labels: map[string]string{"weight": "7"}}, want: Attributes{Weight: 7, Zone: "eu-1-x"}},
		"a label that is no weight": {reason: "the rule is named", metadata: map[string]ValueTemplate{"weight": "{label:weight}"}, subject: Subject{Labels: map[string]string{"weight": "heavy"}}, wantErr: []string{"weight", `"heavy"`, "service.metadata"}},
		"tags": {
			reason: "spaces around do not matter, and neither does the order", subject: annotated(AnnotationTags, " primary, http ,http"),
			want: Attributes{Tags: []string{"http", "primary"}},
		},
		"a tag's comma": {
			reason: "a router's rule has some", subject: annotated(AnnotationTags, "a,rule=Host(`x`\\, `y`)"),
			want: Attributes{Tags: []string{"a", "rule=Host(`x`, `y`)"}},
		},
		"no tags":        {reason: "an annotation that says nothing is a mistake", subject: annotated(AnnotationTags, ""), wantErr: []string{AnnotationTags, "empty", `"primary,http"`}},
		"an empty tag":   {reason: "a tag was forgotten", subject: annotated(AnnotationTags, "a,,b"), wantErr: []string{AnnotationTags, "empty"}},
		"a tag of dirt":  {reason: "a log would break", subject: annotated(AnnotationTags, "a\nb"), wantErr: []string{AnnotationTags, "can't be printed"}},
		"a tag too long": {reason: "there is a bound", subject: annotated(AnnotationTags, strings.Repeat("t", 1025)), wantErr: []string{AnnotationTags, "1025 bytes", "at most 1024"}},
		"too many tags": {
			reason: "there is a bound, and both count", tags: []ValueTemplate{"x"}, subject: annotated(AnnotationTags, pairs(50)),
			wantErr: []string{AnnotationTags, "service.tags", "51 tags", "at most 50"},
		},
		"the rules' tags": {
			reason:  "the annotation adds to them; half of a tag is none",
			tags:    []ValueTemplate{"version-{label:version}", "team-{label:team}", "all"},
			subject: Subject{Labels: map[string]string{"version": "2"}, Annotations: map[string]string{AnnotationTags: "primary,all"}},
			want:    Attributes{Tags: []string{"all", "primary", "version-2"}},
		},
		"a tag too long from the rules": {
			reason: "parts that are fine alone can be too long together", tags: []ValueTemplate{ValueTemplate(strings.Repeat("x", 1000) + "{label:a}")},
			subject: Subject{Labels: map[string]string{"a": strings.Repeat("a", 63)}},
			wantErr: []string{"service.tags", "1063 bytes", "at most 1024"},
		},
		"pairs": {
			reason:  "spaces around do not matter, and only the first = is one",
			subject: annotated(AnnotationMetadata, " version=v1, team = a b ,query=x=y"),
			want:    Attributes{Metadata: map[string]string{"version": "v1", "team": "a b", "query": "x=y"}},
		},
		"any script":       {reason: "values are for people too", subject: annotated(AnnotationMetadata, "team=Größe 团队"), want: Attributes{Metadata: map[string]string{"team": "Größe 团队"}}},
		"no pairs":         {reason: "an annotation that says nothing is a mistake", subject: annotated(AnnotationMetadata, ""), wantErr: []string{AnnotationMetadata, "empty", `"version=v1,team=a"`}},
		"a trailing comma": {reason: "a pair was forgotten", subject: annotated(AnnotationMetadata, "a=1,"), wantErr: []string{"empty"}},
		"a value's comma":  {reason: "half of the value stands alone", subject: annotated(AnnotationMetadata, "a=1,2"), wantErr: []string{`"2" is not a key and a value`, "can't contain a comma"}},
		"no key":           {reason: "it was forgotten", subject: annotated(AnnotationMetadata, "=1"), wantErr: []string{`"=1" is not`}},
		"a key twice":      {reason: "one of them is a mistake", subject: annotated(AnnotationMetadata, "a=1,a=2"), wantErr: []string{"the key a occurs twice"}},
		"an odd key":       {reason: "it would be no name in XML", subject: annotated(AnnotationMetadata, "a/b=1"), wantErr: []string{`"a/b" is not a key`, "letters, digits"}},
		"a key of digits":  {reason: "it would be no name in XML", subject: annotated(AnnotationMetadata, "1a=1"), wantErr: []string{"begin with a letter"}},
		"Spring's keys":    {reason: "Spring Boot Admin reads user.name", subject: annotated(AnnotationMetadata, "user.name=x,a-b_C9=y"), want: Attributes{Metadata: map[string]string{"user.name": "x", "a-b_C9": "y"}}},
		"a reserved key":   {reason: "a pod must not fake its owner", subject: annotated(AnnotationMetadata, "rollcall-uid=1"), wantErr: []string{"key rollcall-uid is written by Rollcall itself", "choose another"}},
		"a key too long":   {reason: "Consul takes 128 bytes", subject: annotated(AnnotationMetadata, strings.Repeat("k", 129)+"=1"), wantErr: []string{"129 bytes", "at most 128"}},
		"a value too long": {reason: "Consul takes 512 bytes", subject: annotated(AnnotationMetadata, "a="+strings.Repeat("v", 513)), wantErr: []string{"the value of a has 513 bytes", "at most 512"}},
		"a value of dirt":  {reason: "JSON would change it silently", subject: annotated(AnnotationMetadata, "a=\xff"), wantErr: []string{"the value of a", "UTF-8"}},
		"too many pairs":   {reason: "Consul takes 64, the mark among them", subject: annotated(AnnotationMetadata, pairs(51)), wantErr: []string{"51 pairs", "at most 50"}},
		"the rules' pairs": {
			reason:   "each placeholder has its place",
			metadata: map[string]ValueTemplate{"where": "{region}/{zone}/{node}", "who": "{namespace}.{workload}", "version": "v{label:version}", "fixed": "x"},
			subject:  Subject{Namespace: "prod", Workload: "web", Labels: map[string]string{"version": "2"}, Node: node},
			want: Attributes{Zone: "eu-1a", Metadata: map[string]string{
				"where": "eu-1/eu-1a/node-1", "who": "prod.web", "version": "v2", "fixed": "x",
			}},
		},
		"the node's zone in a pair": {
			reason: "{zone} is what the node says, whatever the pod says", metadata: map[string]ValueTemplate{"rack": "{zone}"},
			subject: Subject{Node: node, Annotations: map[string]string{AnnotationMetadata: "zone=here"}},
			want:    Attributes{Zone: "here", Metadata: map[string]string{"rack": "eu-1a"}},
		},
		"a zone that can't be read": {
			reason: "not known is not empty", metadata: map[string]ValueTemplate{"rack": "{zone}"}, subject: Subject{Node: unread},
			wantErr: []string{"{zone}", "grant it the right to list and watch nodes"},
		},
		"a region that can't be read": {
			reason: "the same", tags: []ValueTemplate{"in-{region}"}, subject: Subject{Node: unread}, wantErr: []string{"{region}"},
		},
		"a node that can't be read": {
			reason: "nothing asks for more than its name", metadata: map[string]ValueTemplate{"on": "{node}"}, subject: Subject{Node: unread},
			want: Attributes{Metadata: map[string]string{"on": "node-1"}},
		},
		"an empty placeholder": {
			reason: "no value is better than half of one", metadata: map[string]ValueTemplate{"version": "v{label:version}", "zone2": "{zone}"},
		},
		"the annotation's pair": {
			reason: "it wins for its key, and leaves the others", metadata: map[string]ValueTemplate{"a": "rule", "b": "rule"},
			subject: annotated(AnnotationMetadata, "a=pod,c=pod"),
			want:    Attributes{Metadata: map[string]string{"a": "pod", "b": "rule", "c": "pod"}},
		},
		"an empty pair": {
			reason: "that is how a pod takes out what the rules give", metadata: map[string]ValueTemplate{"a": "rule", "b": "rule"},
			subject: annotated(AnnotationMetadata, "a="),
			want:    Attributes{Metadata: map[string]string{"b": "rule"}},
		},
		"a result too long": {
			reason: "parts that are fine alone can be too long together", metadata: map[string]ValueTemplate{"a": ValueTemplate(strings.Repeat("x", 500) + "{label:a}")},
			subject: Subject{Labels: map[string]string{"a": strings.Repeat("a", 63)}},
			wantErr: []string{"service.metadata[a]", "563 bytes", "at most 512"},
		},
		"too many with the rules'": {
			reason: "both count", metadata: map[string]ValueTemplate{"a": "x"}, subject: annotated(AnnotationMetadata, pairs(50)),
			wantErr: []string{"51 pairs"},
		},
		"all wrong": {
			reason:  "one look must be enough",
			subject: Subject{Annotations: map[string]string{AnnotationTags: "", AnnotationMetadata: ","}},
			wantErr: []string{AnnotationTags, AnnotationMetadata},
		},
	}, func(t *testing.T, tc row) {
		got, err := Rules{Tags: tc.tags, Metadata: tc.metadata}.AttributesOf(tc.subject)
		expectError(t, tc.reason, err, tc.wantErr)
		expect.Equal(t, tc.want, got, "%s", tc.reason)
	})
}

func TestParseValueTemplateRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       "set a text for the value",
		"{app}":                  "{app} is not a known placeholder: use {namespace}, {workload}, {node}, {zone}, {region}, {pod}, {podIP}, {podIPv4}, {podIPv6}, {hostIP}, {subdomain}, {label:KEY}",
		"a\nb":                   "can't be printed",
		strings.Repeat("x", 513): "513 bytes",
	} {
		_, err := ParseValueTemplate(text)
		expect.Error(t, text, err, want)
	}
}

func TestRegistriesOf(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		written string // - for no annotation
		want    []Registration
		wantErr []string
	}
	expect.Each(t, map[string]row{
		"none":           {"the default holds, sorted", "-", []Registration{{"new", true}, {"old", false}}, nil},
		"one":            {"the annotation wins", "other", []Registration{{"other", false}}, nil},
		"several":        {"spaces and order do not matter", " old ,new", []Registration{{"new", true}, {"old", false}}, nil},
		"app":            {"the pod wins, spaces or not", "old = app ,new", []Registration{{"new", true}, {"old", true}}, nil},
		"rollcall":       {"the pod wins", "new=rollcall", []Registration{{"new", false}}, nil},
		"another writer": {"a typo must not pass", "new=App", nil, []string{AnnotationRegistries, `"new=App"`, "set new=app", "new=rollcall"}},
		"no writer":      {"it says nothing", "new=", nil, []string{AnnotationRegistries, "set new=app"}},
		"empty":          {"an annotation that says nothing is a mistake", "", nil, []string{AnnotationRegistries, "empty", "new, old, other"}},
		"trailing comma": {"a name was forgotten", "old,", nil, []string{AnnotationRegistries, "empty"}},
		"twice":          {"one of them is a mistake", "old,new, old", nil, []string{AnnotationRegistries, "old occurs twice"}},
		"twice, by whom": {"one of them is a mistake", "old,old=app", nil, []string{"old occurs twice"}},
		"a writer alone": {"no registry may have that name", "app", nil, []string{`"app" is not a registry`, "new, old, other", "=app"}},
		"unknown":        {"the known ones are listed", "old,newer", nil, []string{AnnotationRegistries, `"newer" is not a registry`, "new, old, other"}},
		"another's case": {"names are lower-case", "Old", nil, []string{`"Old" is not a registry`}},
		"another comma":  {"; is part of a name", "old;new", nil, []string{`"old;new" is not`}},
	}, func(t *testing.T, tc row) {
		annotations := map[string]string{AnnotationTags: "other"}
		if tc.written != "-" {
			annotations[AnnotationRegistries] = tc.written
		}
		got, err := RegistriesOf(annotations, []string{"new", "old"}, map[string]bool{"old": false, "new": true, "other": false})
		expectError(t, tc.reason, err, tc.wantErr)
		expect.Equal(t, tc.want, got, "%s", tc.reason)
	})
}

// Whatever a tenant writes, there is no panic, and what is accepted fits into any registry.
func FuzzAnnotations(f *testing.F) {
	for _, seed := range []string{"", ",", "=", "a=1", "a=b=c, d = e", "old,new", "100", "web=8080", "15s", "\xff", "zone=x", "a=é,b=\u00a0"} {
		f.Add(seed)
	}
	rules := Rules{Port: 80, Metadata: map[string]ValueTemplate{}}
	f.Fuzz(func(t *testing.T, text string) {
		annotations := map[string]string{}
		for _, key := range []string{AnnotationMetadata, AnnotationRegistries, AnnotationServices, AnnotationDrain} {
			annotations[key] = text
		}
		s := Subject{Workload: "web", Annotations: annotations}
		_, _ = rules.EndpointsOf(s)
		_, _ = DrainOf(annotations, drain.Policy{})
		if all, err := RegistriesOf(annotations, nil, map[string]bool{"new": false, "old": true}); err == nil && len(all) == 0 {
			t.Errorf("%q gives no registry", text)
		}
		if got, err := rules.AttributesOf(Subject{Annotations: map[string]string{AnnotationMetadata: text}}); err == nil {
			expectFits(t, got)
		}
	})
}

func expectFits(t *testing.T, got Attributes) {
	t.Helper()
	if got.Weight < 0 || got.Weight > MaxWeight || len(got.Zone) > maxValueLength || len(got.Metadata) > maxMetadata {
		t.Errorf("accepted %+v", got)
	}
	in := registry.Instance{Service: "web", Weight: got.Weight, Zone: got.Zone, Metadata: got.Metadata}
	meta := in.Meta()
	for key, value := range meta {
		if len(key) > maxKeyLength || len(value) > maxValueLength || !utf8.ValidString(value) {
			t.Errorf("accepted %q = %q", key, value)
		}
	}
	read := registry.Instance{Service: "web"}
	if read.SetMeta(meta); !read.Equal(in) {
		t.Errorf("accepted %+v, which reads back as %+v", in, read)
	}
}

func TestWarmed(t *testing.T) {
	t.Parallel()
	joined := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	type row struct {
		reason     string
		full       int
		in, warmUp time.Duration
		want       int
		grows      time.Duration
	}
	expect.Each(t, map[string]row{
		"at first":               {"1 %", 200, 0, 2 * time.Minute, 2, 12 * time.Second},
		"before the first":       {"as at first", 200, 11 * time.Second, 2 * time.Minute, 2, time.Second},
		"after a tenth":          {"a tenth", 200, 12 * time.Second, 2 * time.Minute, 20, 12 * time.Second},
		"between two steps":      {"never more than the line", 200, 71 * time.Second, 2 * time.Minute, 100, time.Second},
		"at last":                {"all of it, and no further look", 200, 2 * time.Minute, 2 * time.Minute, 200, 0},
		"long after":             {"the same", 200, 1000 * time.Hour, 2 * time.Minute, 200, 0},
		"a small weight":         {"an instance of weight 0 would get nothing", 5, 12 * time.Second, 2 * time.Minute, 1, 12 * time.Second},
		"a record from later":    {"the last leader's clock was a little ahead", 200, -12 * time.Second, 2 * time.Minute, 2, 12 * time.Second},
		"the clock was set back": {"a beginning in the future is none", 200, -13 * time.Second, 2 * time.Minute, 200, 0},
		"no warm-up":             {"it is off", 200, 0, 0, 200, 0},
		"no weight":              {"it is off", 0, 0, 0, 0, 0},
		"too short for a step":   {"no division by zero", 200, 0, 9, 200, 0},
	}, func(t *testing.T, tc row) {
		got, grows := Attributes{Weight: tc.full, WarmUp: tc.warmUp}.Warmed(joined, joined.Add(tc.in))
		if got != tc.want || grows != tc.grows {
			t.Errorf("got %d for %s, want %d for %s\nreason: %s", got, grows, tc.want, tc.grows, tc.reason)
		}
	})
	if got, _ := (Attributes{Weight: 7, WarmUp: time.Minute}).Warmed(time.Time{}, joined); got != 7 {
		t.Errorf("a pod that came without warm-up has the weight %d", got)
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	type row struct {
		reason         string
		full           int
		percent        int
		canary, stable int
		wantC, wantS   int
	}
	expect.Each(t, map[string]row{
		"a small part":                     {"9:100 is 0.99 %", 100, 1, 1, 9, 9, 100},
		"one pod of ten":                   {"9:4 is exact, 100:44 has the full weight", 100, 20, 1, 9, 100, 44},
		"half":                             {"9:1", 100, 50, 1, 9, 100, 11},
		"as many of both":                  {"as the shares", 100, 20, 5, 5, 25, 100},
		"the share that they have anyway":  {"all weigh the same", 100, 10, 1, 9, 100, 100},
		"alone":                            {"there is nobody to share with", 100, 20, 1, 0, 100, 100},
		"without a weight":                 {"nothing to weigh with", 0, 20, 1, 9, 0, 0},
		"a weight that is too small":       {"9:4 are the smallest that do", 1, 20, 1, 9, 9, 4},
		"rounded, it would be 41 %":        {"1:71 is 49.6 %", 100, 50, 700, 10, 1, 71},
		"more than the full weight":        {"10 pods have to have 99 times what 50 have", 100, 1, 50, 10, 1, 450},
		"for HAProxy":                      {"it takes a 256th", 10000, 20, 1, 9, 10000, 4444},
		"more than any registry can weigh": {"as near as it goes", 100, 1, 2000, 1, 1, MaxWeight},
	}, func(t *testing.T, tc row) {
		a := Attributes{Weight: tc.full}
		canary, stable := a.Shared(tc.percent, tc.canary, tc.stable), a.Shared(100-tc.percent, max(tc.stable, 1), tc.canary)
		if tc.stable == 0 {
			stable = tc.wantS
		}
		if canary != tc.wantC || stable != tc.wantS {
			t.Errorf("got %d and %d, want %d and %d: %s", canary, stable, tc.wantC, tc.wantS, tc.reason)
		}
	})
}

// FuzzShared: up to 40 pods of each revision get their shares, by weights that both compute alike and that a registry takes.
func FuzzShared(f *testing.F) {
	f.Add(100, 20, 1, 9)
	f.Fuzz(func(t *testing.T, full, percent, canary, stable int) {
		within := func(n, most int) int { return 1 + (n&math.MaxInt)%most }
		a := Attributes{Weight: within(full, MaxWeight)}
		percent, canary, stable = within(percent, 99), within(canary, 40), within(stable, 40)
		ofCanary, ofStable := a.Shared(percent, canary, stable), a.Shared(100-percent, stable, canary)
		got := 100 * float64(ofCanary*canary) / float64(ofCanary*canary+ofStable*stable)
		if math.Abs(got-float64(percent)) > 0.5 || min(ofCanary, ofStable) < 1 || max(ofCanary, ofStable) > MaxWeight {
			t.Errorf("%d pods with %d and %d with %d get %.2f %%, want %d", canary, ofCanary, stable, ofStable, got, percent)
		}
	})
}

// FuzzWarmed: the weight never falls, and whoever looks again when it grows comes to its end in a few looks.
func FuzzWarmed(f *testing.F) {
	f.Add(200, int64(2*time.Minute), int64(0))
	f.Add(1, int64(13), int64(5))
	f.Fuzz(func(t *testing.T, full int, warmUp, in int64) {
		a := Attributes{Weight: 1 + (full&math.MaxInt)%MaxWeight, WarmUp: time.Duration(warmUp & math.MaxInt64 % int64(time.Hour))}
		now, last := time.Unix(0, in&math.MaxInt64%int64(time.Hour)), 0
		for looks := 0; ; looks++ {
			weight, grows := a.Warmed(time.Unix(0, 0), now)
			if weight < last || weight < 1 || weight > a.Weight || looks > 11 {
				t.Fatalf("%+v: weight %d after %d, look %d", a, weight, last, looks)
			}
			if grows == 0 {
				if weight != a.Weight {
					t.Fatalf("%+v stays at %d", a, weight)
				}
				return
			}
			last, now = weight, now.Add(grows)
		}
	})
}
