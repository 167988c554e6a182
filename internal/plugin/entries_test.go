package plugin

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// podsOf reads pods and their logs from an API server that answers so.
func podsOf(t *testing.T, answer answering) corev1client.PodsGetter {
	t.Helper()
	pods, err := corev1client.NewForConfigAndClient(&rest.Config{Host: "http://api"}, &http.Client{Transport: answer})
	expect.NoError(t, err)
	return pods
}

// TestAViewAsksTheManager: two views of a watch show what the manager answers, or else what the pods and Events show.
func TestAViewAsksTheManager(t *testing.T) {
	t.Parallel()
	const timeout = `{"pod": {"hook": "preDelete", "reason": "RegistryUnavailable", "message": "no answer in 5s", "warning": true}}`
	says := func(body string) answering {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}
	}
	type row struct {
		reason, warns, unknown string
		answer                 answering
		why                    reason.Reason
		asked                  int
		took                   time.Duration
	}
	const forbidden = "the reasons are only what the pods show: reading Events: events is forbidden"
	bubble.Each(t, map[string]row{
		"answers": {
			reason: "it knows best, and nobody needs the right to list Events", answer: says(`{"leads": true, "waits": ` + timeout + `}`),
			why: reason.RegistryUnavailable, asked: 2,
		},
		"is older": {
			reason: "it does not say why pods wait", answer: says(`{"leads": true}`), why: reason.Acknowledgement, asked: 2, warns: forbidden,
		},
		"leads no more": {
			reason: "what it once knew says nothing", answer: says(`{"leads": false, "waits": ` + timeout + `}`),
			why: reason.Acknowledgement, asked: 2, warns: forbidden, unknown: "does not lead any more",
		},
		"is silent": {
			reason: "a watch must not take five seconds for each view", why: reason.Acknowledgement, asked: 1, took: answerWithin, warns: forbidden,
			unknown: "asking the manager rollcall-0: ",
			answer: func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			},
		},
	}, func(t *testing.T, c row) {
		pod := scene{
			state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService,
			labels: map[string]string{"app": "web", "example.com/delete": "true"},
		}.pod(t)
		cluster, _ := installed(t, configText, pod, theCloneSet(t, cloneSetText), leaseHeld(now), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "rollcall-0"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: metricsPort, ContainerPort: 8080}}}}},
		})
		forbidding(cluster, "events")
		asked := 0
		cluster.pods = podsOf(t, func(r *http.Request) (*http.Response, error) {
			asked++
			return c.answer(r)
		})
		var warned strings.Builder
		cluster.ErrOut = &warned
		began := time.Now()
		for range 2 {
			r, err := cluster.rollout(context.WithoutCancel(t.Context()), "web")
			expect.NoError(t, err)
			expect.Error(t, c.reason, r.unknown, c.unknown)
			if len(r.pods) != 1 || r.pods[0].Reason != c.why || r.pods[0].facts.warned != (c.why == reason.RegistryUnavailable) {
				t.Errorf("%s: it shows %+v, want one pod that waits for %s", c.reason, r.pods, c.why)
			}
		}
		if took := time.Since(began); asked != c.asked || took != c.took {
			t.Errorf("%s: it asked %d times and took %s, want %d and %s", c.reason, asked, took, c.asked, c.took)
		}
		if got := warned.String(); !strings.Contains(got, c.warns) || c.warns == "" && got != "" {
			t.Errorf("%s: it warns %q, want %q", c.reason, got, c.warns)
		}
	})
}

// TestStatesOfAnotherVersion has a manager of another version answer.
func TestStatesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	for state, want := range map[entries.State]string{"": "Unknown", "draining": "Draining", entries.In: "In"} {
		all := []entries.Entry{{Registry: "default", Service: "web", Endpoint: "10.0.0.1:80", State: state}}
		if got := registryOf(Pod{Entries: all}); got != want {
			t.Errorf("state %q is shown as %q, want %q", state, got, want)
		}
		said := strings.Join(registrySentences(Pod{Entries: all}, nil), " ")
		if strings.Contains(said, "does not know") == (state == entries.In) {
			t.Errorf("of state %q it says %q", state, said)
		}
	}
}
