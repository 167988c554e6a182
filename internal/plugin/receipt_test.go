package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestManagers: a receipt asks the managers, and no other pod of their namespace.
func TestManagers(t *testing.T) {
	t.Parallel()
	pod := func(name, component, port string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "system", Labels: map[string]string{
				"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": component,
			}},
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: port, ContainerPort: 8080}}}}},
			Status: corev1.PodStatus{PodIP: "10.0.0.1"},
		}
	}
	other := pod("other", "manager", "metrics")
	other.Labels["app.kubernetes.io/name"] = "prometheus"
	ended, pending := pod("evicted", "manager", "metrics"), pod("pending", "manager", "metrics")
	ended.Status.Phase, pending.Status.PodIP = corev1.PodFailed, ""
	pods, err := clusterWith(
		ended, pending, pod("rollcall-0", "manager", "metrics"), pod("rollcall-1", "manager", "metrics"), pod("silent", "manager", "health"),
		pod("demo", "registry", "metrics"), other,
	).managers(t.Context())
	expect.NoError(t, err)
	var names []string
	for _, one := range pods {
		names = append(names, one.Name)
	}
	if got := strings.Join(names, " "); got != "rollcall-0 rollcall-1" {
		t.Errorf("it asks %s, want rollcall-0 rollcall-1", got)
	}
}

// TestCopiesOfALog reads a chain of four lines from files.
func TestCopiesOfALog(t *testing.T) {
	t.Parallel()
	var lines [][]byte
	hash := ""
	for i, kind := range []receipt.Kind{receipt.Begin, receipt.Ran, receipt.Ran, receipt.End} {
		written, next, err := receipt.Seal(hash, &receipt.Line{Chain: "m/1", Number: i, Kind: kind})
		expect.NoError(t, err)
		lines, hash = append(lines, written), next
	}
	part := func(from, to int) string { return string(bytes.Join(lines[from:to], nil)) }
	type row struct {
		reason string
		files  []string
		want   string
	}
	expect.Each(t, map[string]row{
		"whole":              {"", []string{part(0, 4)}, ""},
		"by the hour":        {"a chain goes on in the next file", []string{part(0, 2), part(2, 4)}, ""},
		"that overlap":       {"a collector delivers lines again", []string{part(0, 3), part(1, 4)}, ""},
		"without a newline":  {"the line is whole all the same", []string{strings.TrimSuffix(part(0, 2), "\n"), part(2, 4)}, ""},
		"without an hour":    {"a line is missing", []string{part(0, 1), part(2, 4)}, "line 2: line 1 of chain m/1 before it is missing"},
		"cut off":            {"only the last may be written to still", []string{part(0, 2), part(2, 4)[:20]}, "line 3 is cut off"},
		"cut off, and whole": {"it was copied while the manager wrote", []string{part(0, 3)[:len(part(0, 2))+20], part(0, 4)}, ""},
		"split within a line": {
			"a collector splits by size", []string{part(0, 3)[:len(part(0, 2))+20], part(0, 4)[len(part(0, 2))+20:]}, "",
		},
		"cut off, and the next": {
			"nothing was altered", []string{strings.TrimSuffix(part(0, 3), "\"}\n"), part(3, 4)}, "line 3 is cut off",
		},
		"of something else": {"", []string{"cluster: a\n", "\n"}, "no line of an audit log"},
	}, func(t *testing.T, c row) {
		paths := []string{"-"} // standard input comes first
		for i, text := range c.files[1:] {
			paths = append(paths, filepath.Join(t.TempDir(), string(rune('a'+i))))
			expect.NoError(t, os.WriteFile(paths[i+1], []byte(text), 0o600))
		}
		o := &options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(c.files[0])}}
		read, until, _, err := o.auditLines(t.Context(), paths)
		expect.Error(t, c.reason, err, c.want)
		if err == nil && (len(read) != len(lines) || !until.IsZero()) {
			t.Errorf("read %d lines until %s, want %d and no time: %s", len(read), until, len(lines), c.reason)
		}
	})
}

// TestManagersTime: what is overdue in the managers' lines is so by a manager's clock.
func TestManagersTime(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		objects []client.Object
		renewed time.Duration // once more, after two seconds
		want    time.Time
	}
	behind := now.Add(-3 * time.Minute)
	bubble.Each(t, map[string]row{
		"clocks agree":       {"all lines up to then are there", []client.Object{leaseHeld(now.Add(-time.Second))}, 0, now.Add(-time.Second)},
		"this one is ahead":  {"a manager renews the Lease", []client.Object{leaseHeld(behind)}, 2 * time.Second, behind.Add(2 * time.Second)},
		"this one is behind": {"no manager's clock is", []client.Object{leaseHeld(now.Add(time.Minute))}, 0, now.Add(time.Minute)},
		"no manager leads":   {"nothing is compared, which the receipt has to say", []client.Object{leaseHeld(behind)}, 0, now},
		"no Lease":           {"there is no other clock", nil, 0, now},
	}, func(t *testing.T, c row) {
		cluster := clusterWith(c.objects...)
		if c.renewed > 0 {
			time.AfterFunc(2*time.Second, func() {
				lease := leaseHeld(now)
				expect.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
				lease.Spec.RenewTime.Time = lease.Spec.RenewTime.Add(c.renewed)
				expect.NoError(t, cluster.Update(t.Context(), lease))
			})
		}
		if got := cluster.managersTime(t.Context()); !got.Equal(c.want) {
			t.Errorf("the lines are judged as of %s, want %s: %s", got, c.want, c.reason)
		}
	})
}
