package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/logged"
)

// anUpdate is the log of a CloneSet of two pods that was updated in place. The hook of the second one was released before its entry was
// out.
func anUpdate(t *testing.T) string {
	t.Helper()
	at := now
	var out bytes.Buffer
	l := history.New(logged.JSON(&out, zapcore.InfoLevel, func() time.Time { at = at.Add(time.Second); return at }))
	for i, early := range []bool{false, true} {
		pod := history.Pod{Namespace: "prod", Name: fmt.Sprint("storefront-7c9d", i+1), UID: fmt.Sprint("uid-", i+1), Workload: "CloneSet/storefront", Revision: "storefront-64f7c"}
		entry := history.Entry{Registry: "default", Service: "storefront", Endpoint: fmt.Sprintf("10.0.0.%d:8080", i+1)}
		release := func(hook, state, rotation string, waited time.Duration) {
			l.Released(pod, history.Release{
				Hook: hook, State: state, Rotation: rotation, By: history.ByAcknowledgement, Entries: []history.Entry{entry}, Waited: waited,
			})
		}
		l.Registered(pod, entry, "PreparingNormal", 4*time.Millisecond)
		release("preNormal", "PreparingNormal", history.In, 1200*time.Millisecond)
		if !early {
			l.TakenOut(pod, entry, 3*time.Millisecond)
			l.DrainBegun(pod, at, time.Second, time.Minute)
			l.DrainEnded(pod, "idle", "idle", 2*time.Second)
		}
		release("inPlaceUpdate", "PreparingUpdate", history.Out, 4*time.Second)
		if early {
			l.TakenOut(pod, entry, 5*time.Second)
		}
		pod.Revision = "storefront-9b2d5"
		l.Registered(pod, entry, "Updated", 4*time.Millisecond)
		release("inPlaceUpdate", "Updated", history.In, time.Second)
	}
	other := history.Pod{Namespace: "prod", Name: "other-1", UID: "other", Workload: "CloneSet/other"}
	l.Removed(other, history.Entry{Registry: "default", Service: "other", Endpoint: "10.0.0.9:80"}, history.ByResync, time.Millisecond)
	return out.String()
}

// TestHistory reads files, and takes pods and workloads by their names.
func TestHistory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rollcall.log")
	expect.NoError(t, os.WriteFile(path, []byte(anUpdate(t)), 0o600))
	type row struct {
		reason, arguments, input string
		status                   int
		want                     []string
	}
	none := "The lines of 1 pod show no hook that was released before the registry acknowledged"
	expect.Each(t, map[string]row{
		"a pod":              {"nothing is wrong with it", "storefront-7c9d1 -n prod -f " + path, "", exitOK, []string{none}},
		"a pod by its kind":  {"a workload can have the name too", "pod/storefront-7c9d1 -n prod -f " + path, "", exitOK, []string{none}},
		"from a pipe":        {"a collector's client writes there", "storefront-7c9d1 -n prod -f -", anUpdate(t), exitOK, []string{none}},
		"twice":              {"a line counts once", "storefront-7c9d1 -n prod -f - -f " + path, anUpdate(t), exitOK, []string{none}},
		"a pod with a fault": {"a script sees it", "storefront-7c9d2 -n prod -f " + path, "", exitFindings, []string{"released before acknowledged: ", "something went wrong: see the line above"}},
		"a workload": {
			"all its pods are judged", "storefront -n prod -f " + path, "", exitFindings,
			[]string{"storefront-7c9d1", "released before acknowledged: ", "storefront-7c9d2: hook inPlaceUpdate"},
		},
		"a workload by its kind": {"as kubectl has it", "cloneset/storefront -n prod -f " + path, "", exitFindings, nil},
		"of another kind":        {"there is none", "daemonset/storefront -n prod -f " + path, "", exitNotFound, []string{"no line about a pod or a workload daemonset/storefront in namespace prod"}},
		"of another namespace":   {"names repeat", "storefront -n test -f " + path, "", exitNotFound, []string{"in namespace test. They are from 20"}},
		"not a log":              {"a person has the wrong file", "storefront -n prod -f -", "cluster: a\n", exitNotFound, []string{"no line that a manager wrote in JSON"}},
		"no file":                {"the error shows which", "storefront -n prod -f /none", "", exitFailed, []string{"reading the log: open /none"}},
	}, func(t *testing.T, c row) {
		status, out, errOut := ran(t, c.input, append([]string{"history"}, strings.Fields(c.arguments)...)...)
		out += errOut
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: there is no %q in\n%s", c.reason, want, out)
			}
		}
		if status != c.status {
			t.Errorf("%s: status %d, want %d:\n%s", c.reason, status, c.status, out)
		}
	})
}

// TestHistory_OfTheManagers reads the logs of each manager, and of the container before a restart.
func TestHistory_OfTheManagers(t *testing.T) {
	t.Parallel()
	manager := func(name string, restarts int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: name, Labels: map[string]string{
				"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager",
			}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "manager", RestartCount: restarts}}},
		}
	}
	whole := strings.SplitAfter(anUpdate(t), "\n")
	answers := map[string]string{
		"/api/v1/namespaces/system/pods/rollcall-0/log?container=manager&previous=true": strings.Join(whole[:4], ""),
		"/api/v1/namespaces/system/pods/rollcall-0/log?container=manager":               strings.Join(whole[4:9], ""),
		"/api/v1/namespaces/system/pods/rollcall-1/log?container=manager":               strings.Join(whole[9:], ""),
	}
	type row struct {
		reason string
		pods   []*corev1.Pod
		lines  int
		unread string
		err    string
	}
	expect.Each(t, map[string]row{
		"two":           {"each has led for a while", []*corev1.Pod{manager("rollcall-0", 1), manager("rollcall-1", 0)}, 15, "", ""},
		"one is away":   {"what is missing is reported", []*corev1.Pod{manager("rollcall-1", 0), manager("rollcall-2", 0)}, 6, "reading the log of rollcall-2", ""},
		"all are away":  {"there is nothing to judge", []*corev1.Pod{manager("rollcall-2", 0)}, 0, "", "reading the log of rollcall-2"},
		"not installed": {"a person sets the namespace", nil, 0, "", "namespace system has no pods of a manager: set --rollcall-namespace"},
	}, func(t *testing.T, c row) {
		cluster := clusterWith()
		for _, pod := range c.pods {
			expect.NoError(t, cluster.Create(t.Context(), pod))
		}
		cluster.pods = podsOf(t, func(r *http.Request) (*http.Response, error) {
			text, has := answers[r.URL.RequestURI()]
			if !has {
				return nil, errors.New("no route to host")
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}, nil
		})
		logs, unread, err := cluster.managersLogs(t.Context())
		expect.Error(t, c.reason, err, c.err)
		expect.Error(t, c.reason, unread, c.unread)
		if got := len(history.Read(logs...).Lines()); got != c.lines {
			t.Errorf("%s: %d lines, want %d", c.reason, got, c.lines)
		}
	})
}
