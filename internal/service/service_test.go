package service

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestEndpointsOf(t *testing.T) {
	t.Parallel()
	web := map[string]string{"app": "web"}
	ports := func(ports ...corev1.ContainerPort) *lifecycle.PodSpec {
		return &lifecycle.PodSpec{Containers: []lifecycle.Container{{Name: "log"}, {Name: "main", Ports: ports}}}
	}
	tcp8080 := ports(corev1.ContainerPort{ContainerPort: 8080})
	annotated := func(s string) map[string]string { return map[string]string{AnnotationServices: s} }

	tests := map[string]struct {
		reason  string
		name    NameTemplate
		port    int
		subject Subject
		want    []Endpoint
		wantErr []string
	}{
		"the label and the first container port": {
			reason:  "the defaults give the label app and the first port that any container names",
			subject: Subject{Namespace: "prod", Workload: "web-clone", Labels: web, Spec: tcp8080},
			want:    []Endpoint{{Name: "web", Port: 8080}},
		},
		"the configured port": {
			reason:  "service.port goes before what the containers name",
			port:    9000,
			subject: Subject{Labels: web, Spec: tcp8080},
			want:    []Endpoint{{Name: "web", Port: 9000}},
		},
		"too many services": {
			reason: "every look at a workload reads them, for all tenants", subject: Subject{Annotations: annotated(strings.Repeat("web=1,", 51) + "web=2")},
			wantErr: []string{AnnotationServices, "52 services", "at most 50"},
		},
		"UDP first": {
			reason: "only a TCP port can be registered",
			subject: Subject{Labels: web, Spec: ports(
				corev1.ContainerPort{ContainerPort: 53, Protocol: corev1.ProtocolUDP},
				corev1.ContainerPort{ContainerPort: 8081, Protocol: corev1.ProtocolTCP})},
			want: []Endpoint{{Name: "web", Port: 8081}},
		},
		"SidecarSet first": {
			reason:  "clients look for the application, not for what OpenKruise has put before it",
			subject: Subject{Labels: web, Spec: containers(injected("agent", 9102), container("web", 8080))},
			want:    []Endpoint{{Name: "web", Port: 8080}},
		},
		"service mesh first": {
			reason: "it names the application's container where it puts its own before it",
			subject: Subject{
				Labels: web, Spec: containers(container("istio-proxy", 15090), container("web", 8080)),
				Annotations: map[string]string{lifecycle.AnnotationDefaultContainer: "web"},
			},
			want: []Endpoint{{Name: "web", Port: 8080}},
		},
		"default container without a port": {
			reason: "another one has it",
			subject: Subject{
				Labels: web, Spec: containers(container("shell", 0), container("web", 8080)),
				Annotations: map[string]string{lifecycle.AnnotationDefaultContainer: "shell"},
			},
			want: []Endpoint{{Name: "web", Port: 8080}},
		},
		"no port": {
			reason:  "the error names all three ways to give a port",
			subject: Subject{Labels: web, Spec: ports()},
			wantErr: []string{"no port to register", "service.port", "containerPort", `rollcall.dev/services: "name=port"`},
		},
		"no spec": {reason: "a nil spec names no port", subject: Subject{Labels: web}, wantErr: []string{"no port to register"}},
		"only the label is missing": {
			reason:  "an empty result is the workload's name",
			subject: Subject{Workload: "web-clone", Spec: tcp8080},
			want:    []Endpoint{{Name: "web-clone", Port: 8080}},
		},
		"no label and no workload": {
			reason:  "with nothing to name the service, the error says which label to set",
			subject: Subject{Spec: tcp8080},
			wantErr: []string{"no service name", "set label app", AnnotationServices},
		},
		"a whole template": {
			reason:  "every placeholder and literal text have their place",
			name:    "{namespace}.{workload}-{label:example.com/tier}!",
			subject: Subject{Namespace: "prod", Workload: "clone", Labels: map[string]string{"example.com/tier": "db"}, Spec: tcp8080},
			want:    []Endpoint{{Name: "prod.clone-db!", Port: 8080}},
		},
		"half a template": {
			reason:  "prod- would be one service for all that lack the label",
			name:    "{namespace}-{label:app}",
			subject: Subject{Namespace: "prod", Workload: "clone", Spec: tcp8080},
			wantErr: []string{`gives "prod-"`, "set label app"},
		},
		"a result that is too long": {
			reason: "parts that are fine alone can be too long together",
			name:   "{namespace}-{workload}",
			subject: Subject{Namespace: strings.Repeat("n", 63), Workload: strings.Repeat("w", 253),
				Spec: tcp8080},
			wantErr: []string{"317 bytes", "at most 253"},
		},
		"the annotation": {
			reason:  "the annotation wins, spaces do not matter, and the result is sorted",
			port:    1,
			subject: Subject{Labels: web, Annotations: annotated(" web=8080, admin = 9090 ,web=443"), Spec: tcp8080},
			want:    []Endpoint{{Name: "admin", Port: 9090}, {Name: "web", Port: 443}, {Name: "web", Port: 8080}},
		},
		"an empty annotation": {
			reason:  "an annotation that says nothing is a mistake, not a wish",
			subject: Subject{Labels: web, Annotations: annotated(""), Spec: tcp8080},
			wantErr: []string{"annotation rollcall.dev/services", "empty", `"web=8080,admin=9090"`},
		},
		"a trailing comma": {reason: "an entry was forgotten", subject: Subject{Annotations: annotated("web=1,")}, wantErr: []string{"empty"}},
		"no equals sign":   {reason: "the port is missing", subject: Subject{Annotations: annotated("web")}, wantErr: []string{`"web" is not`, "name=port"}},
		"no name":          {reason: "the name is missing", subject: Subject{Annotations: annotated("=80")}, wantErr: []string{`"=80" is not`, "name=port"}},
		"port zero":        {reason: "0 is no port", subject: Subject{Annotations: annotated("web=0")}, wantErr: []string{`"0" is not a port`, "1 to 65535"}},
		"port too high":    {reason: "65536 is no port", subject: Subject{Annotations: annotated("web=65536")}, wantErr: []string{"1 to 65535"}},
		"port negative":    {reason: "-1 is no port", subject: Subject{Annotations: annotated("web=-1")}, wantErr: []string{"1 to 65535"}},
		"port by name": {
			reason: "the container's manifest has the number",
			subject: Subject{Annotations: annotated("web=http,admin=9090,game=udp"), Spec: ports(
				corev1.ContainerPort{Name: "http", ContainerPort: 8080},
				corev1.ContainerPort{Name: "udp", ContainerPort: 7777, Protocol: corev1.ProtocolUDP})},
			want: []Endpoint{{Name: "admin", Port: 9090}, {Name: "game", Port: 7777}, {Name: "web", Port: 8080}},
		},
		"port by a name that no container has": {
			reason: "it may be misspelt", subject: Subject{Annotations: annotated("web=htp"), Spec: tcp8080},
			wantErr: []string{`annotation rollcall.dev/services: no container has a port with the name "htp"`, "ports[].name"},
		},
		"the same port by number and by name": {
			reason:  "one of them is a mistake",
			subject: Subject{Annotations: annotated("web=http,web=8080"), Spec: ports(corev1.ContainerPort{Name: "http", ContainerPort: 8080})},
			wantErr: []string{"web=8080", "twice"},
		},
		"a port's name too long": {
			reason: "no container can have it", subject: Subject{Annotations: annotated("web=aaaaaaaaaaaaaaaa")},
			wantErr: []string{`"aaaaaaaaaaaaaaaa" is not a port`},
		},
		"only UDP": {
			reason:  "what listens there is not what clients of a registry call by default, and the message tells so",
			subject: Subject{Labels: web, Spec: ports(corev1.ContainerPort{ContainerPort: 53, Protocol: corev1.ProtocolUDP})},
			wantErr: []string{"no container has a TCP port", "rollcall.dev/services"},
		},
		"in a sidecar": {
			reason: "an application can be one of spec.initContainers",
			subject: Subject{Labels: web, Spec: &lifecycle.PodSpec{Containers: []lifecycle.Container{
				{Name: "batch"}, {Name: "web", Sidecar: true, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}},
			}}},
			want: []Endpoint{{Name: "web", Port: 8080}},
		},
		"two equals signs":    {reason: "what follows the first is no number", subject: Subject{Annotations: annotated("a=b=80")}, wantErr: []string{`"b=80" is not a port`}},
		"twice the same":      {reason: "one of them is a mistake", subject: Subject{Annotations: annotated("web=80,web=80")}, wantErr: []string{"web=80", "twice"}},
		"a control character": {reason: "a log or a URL would break", subject: Subject{Annotations: annotated("we\x00b=80")}, wantErr: []string{"can't be printed"}},
		"not UTF-8":           {reason: "JSON would change it silently", subject: Subject{Annotations: annotated("we\xffb=80")}, wantErr: []string{"UTF-8"}},
		"a name too long":     {reason: "no registry takes it", subject: Subject{Annotations: annotated(strings.Repeat("x", 254) + "=80")}, wantErr: []string{"254 bytes"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.name == "" {
				tc.name = "{label:app}"
			}
			got, err := Rules{Name: tc.name, Port: tc.port}.EndpointsOf(tc.subject)
			expectError(t, tc.reason, err, tc.wantErr)
			expect.Equal(t, tc.want, got, "%s", tc.reason)
		})
	}
}

func TestEndpointsOfTheZeroTemplate(t *testing.T) {
	t.Parallel()
	got, err := Rules{Port: 80}.EndpointsOf(Subject{Workload: "web"})
	if diff := cmp.Diff([]Endpoint{{Name: "web", Port: 80}}, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
	if _, err := (Rules{Port: 80}).EndpointsOf(Subject{}); err == nil {
		t.Error("a pod with no workload must be an error")
	}
}

func TestParseNameTemplateRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{app}":                    "{app} is not a known placeholder: use {namespace}, {workload}, {label:KEY}",
		"{label:}":                 "use {label:KEY}",
		"{label:a b}":              "use {label:KEY}",
		"{}":                       "{} is not a known placeholder",
		"x{label:app":              "a { without a }",
		"x}":                       "a } without a {",
		"{{namespace}}":            "is not a known placeholder",
		"a\nb":                     "can't be printed",
		strings.Repeat("x", 1<<10): "1024 bytes",
	} {
		_, err := ParseNameTemplate(text)
		expect.Error(t, text, err, want)
	}
}

func TestDrainOf(t *testing.T) {
	t.Parallel()
	type row struct {
		reason      string
		annotations map[string]string
		want        time.Duration
		wantErr     []string
	}
	expect.Each(t, map[string]row{
		"none":       {reason: "the default holds", want: time.Minute},
		"set":        {reason: "the annotation wins", annotations: map[string]string{AnnotationDrain: "1m30s"}, want: 90 * time.Second},
		"zero":       {reason: "0s switches the drain off", annotations: map[string]string{AnnotationDrain: "0s"}},
		"negative":   {reason: "no time runs backwards", annotations: map[string]string{AnnotationDrain: "-1s"}, wantErr: []string{AnnotationDrain, `set "0s"`}},
		"no unit":    {reason: "seconds or minutes?", annotations: map[string]string{AnnotationDrain: "15"}, wantErr: []string{`"15" is not a duration`, `"15s"`}},
		"empty":      {reason: "says nothing", annotations: map[string]string{AnnotationDrain: ""}, wantErr: []string{`"15s"`}},
		"an object":  {reason: "the field is shown", annotations: map[string]string{AnnotationDrain: "{max: 10m, until: {port: 80}}"}, wantErr: []string{"annotation " + AnnotationDrain + ": until.path: Required"}},
		"too long":   {reason: "a tenant writes it", annotations: map[string]string{AnnotationDrain: strings.Repeat(" ", lifecycle.MaxWord+1)}, wantErr: []string{"more than 1024 bytes"}},
		"overflowed": {reason: "no int64 holds it", annotations: map[string]string{AnnotationDrain: "9999999999999h"}, wantErr: []string{"not a duration"}},
	}, func(t *testing.T, tc row) {
		got, err := DrainOf(tc.annotations, drain.Fixed(time.Minute))
		expectError(t, tc.reason, err, tc.wantErr)
		if got.Min != tc.want || got.Max != tc.want || got.Asks() {
			t.Errorf("%s: got %+v, want %s", tc.reason, got, tc.want)
		}
	})
	annotations := map[string]string{AnnotationDrain: "{max: 10m, until: {path: /idle, port: 8080}}"}
	if got, err := DrainOf(annotations, drain.Fixed(0)); err != nil || got.Max != 10*time.Minute || got.Until.Port != 8080 {
		t.Errorf("got %+v, error %v", got, err)
	}
}

// expectError expects an error that contains every part, and none where there are no parts.
func expectError(t *testing.T, reason string, err error, parts []string) {
	t.Helper()
	if len(parts) == 0 {
		parts = []string{""}
	}
	for _, part := range parts {
		expect.Error(t, reason, err, part)
	}
}

func container(name string, port int32) lifecycle.Container {
	return lifecycle.Container{Name: name, Ports: []corev1.ContainerPort{{ContainerPort: port}}}
}

func injected(name string, port int32) lifecycle.Container {
	return lifecycle.Container{Name: name, Ports: []corev1.ContainerPort{{ContainerPort: port}}, Injected: true}
}

func containers(all ...lifecycle.Container) *lifecycle.PodSpec {
	return &lifecycle.PodSpec{Containers: all}
}

// TestInjected: a webhook puts a container with a port before the application's, and does not set the default container.
func TestInjected(t *testing.T) {
	t.Parallel()
	annotated := func(spec *lifecycle.PodSpec, pairs ...string) Subject {
		s := Subject{Spec: spec, Annotations: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			s.Annotations[pairs[i]] = pairs[i+1]
		}
		return s
	}
	template := containers(container("web", 8080), container("log", 0))
	meshed := containers(container("proxy", 15090), container("web", 8080), container("log", 0))
	type row struct {
		reason string
		pod    Subject
		port   int
		want   string
	}
	expect.Each(t, map[string]row{
		"before the application":   {reason: "clients would be given the proxy's port", pod: annotated(meshed), want: "port is 15090, of container proxy"},
		"behind the application":   {reason: "the first counts", pod: annotated(containers(container("web", 8080), container("proxy", 15090)))},
		"by a SidecarSet":          {reason: "it is never chosen", pod: annotated(containers(injected("proxy", 15090), container("web", 8080)))},
		"without a port":           {reason: "it is never chosen", pod: annotated(containers(container("proxy", 0), container("web", 8080)))},
		"the default is named":     {reason: "the mesh did", pod: annotated(meshed, lifecycle.AnnotationDefaultContainer, "web")},
		"the proxy is the default": {reason: "somebody wants it", pod: annotated(meshed, lifecycle.AnnotationDefaultContainer, "proxy")},
		"the services are named":   {reason: "the author did", pod: annotated(meshed, AnnotationServices, "web=8080")},
		"the port is configured":   {reason: "it is for all", pod: annotated(meshed), port: 8080},
		"of another template":      {reason: "a rollout renames the container", pod: annotated(containers(container("old", 8080)))},
	}, func(t *testing.T, tc row) {
		got := Rules{Port: tc.port}.Injected(tc.pod, template)
		if !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
		}
	})
}
