package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/internal/evictions"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// aWorkload is CloneSet prod/web with a pod that waits to be deleted, one that drains, and one that serves, all on node-1.
func aWorkload(t *testing.T, configuration string) (*cluster, *bytes.Buffer) {
	t.Helper()
	set := theCloneSet(t, cloneSetText)
	set.Spec.Replicas, set.Generation = new(int32(3)), 2
	set.Status.ObservedGeneration, set.Status.UpdatedReplicas, set.Status.AvailableReplicas = 2, 1, 2
	waits := scene{
		state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService, labels: map[string]string{"example.com/delete": "true"},
	}.pod(t)
	waits.Name = "web-waits"
	also := waits.DeepCopy()
	also.Name = "web-also"
	also.Annotations[appspub.LifecycleTimestampKey] = now.Format("2006-01-02T15:04:05Z07:00")
	also.Annotations["rollcall.dev/drain"] = "90s"
	serves := scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService}.pod(t)
	serves.Name = "web-serves"
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "stranger", UID: "stranger"}}
	for _, pod := range []*corev1.Pod{waits, also, serves, stranger} {
		pod.Spec.NodeName = "node-1"
	}
	cluster, _ := installed(t, configuration, set, waits, also, serves, stranger, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{Unschedulable: true},
	}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	var out bytes.Buffer
	cluster.Out, cluster.ErrOut = &out, &out
	return cluster, &out
}

// TestExplainWorkload: a person sees what the pods wait for, in order, and what that means for the rollout.
func TestExplainWorkload(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, argument string
		want             []string
		status           int
	}
	expect.Each(t, map[string]row{
		"by its kind": {"as kubectl does", "cloneset/web", []string{
			"CloneSet prod/web: 3 pods managed by Rollcall, 3 in rotation.\n",
			"2 pods wait at the hook preDelete, the longest for 60s, reason Acknowledgement: pod web-waits: the pod does not show yet",
			"1 of 3 pods are updated and 2 available.\n",
			"The rollout is not done: pod web-waits waits, reason Acknowledgement.\n",
			"OpenKruise updates no further pod meanwhile: 1 pod not available, and maxUnavailable is 1.\n",
			"NAME         STATE             IN STATE", "preNormal      label example.com/in=true: on 1 of 3 pods; Rollcall's\n",
			"inPlaceUpdate  label other.io/gate=true: on 0 of 3 pods; another controller's", "preDelete      label example.com/delete=true: on 3 of 3 pods; Rollcall's\n",
			"about Acknowledgement: https://", "explain one pod: kubectl rollcall explain web-waits -n prod\n",
			"follow the rollout: kubectl rollcall rollout web -n prod --watch\n", "see what was done: kubectl rollcall history cloneset/web -n prod\n",
		}, exitOK},
		"by its name":       {"a pod has not this name", "web", []string{"CloneSet prod/web: 3 pods managed by Rollcall"}, exitOK},
		"by a short name":   {"as kubectl get clone", "clone/web", []string{"CloneSet prod/web: 3 pods managed by Rollcall"}, exitOK},
		"a pod by its kind": {"as status prints it", "pod/web-waits", []string{"prod/web-waits is in rotation"}, exitOK},
		"none of that name": {"a slip", "shop", []string{"namespace prod has no pod and no workload shop"}, exitNotFound},
		"another kind":      {"a slip", "sts/web", []string{"namespace prod has no StatefulSet web of OpenKruise's"}, exitNotFound},
		"an unknown kind":   {"a slip", "deployment/web", []string{"deployment/web: set a pod, cloneset/NAME"}, exitFailed},
	}, func(t *testing.T, c row) {
		cluster, out := aWorkload(t, configText)
		kind, name, err := subjectOf(c.argument)
		switch {
		case err != nil:
		case kind == "":
			err = cluster.explainNamed(t.Context(), name, &form{})
		case kind == kindPod:
			err = cluster.explainPod(t.Context(), name, &form{})
		default:
			err = cluster.explainWorkload(t.Context(), kind, name, &form{})
		}
		expectPrinted(t, c.reason, out, err, c.status, c.want)
	})
	cluster, out := aWorkload(t, configText)
	cluster.ErrOut = new(bytes.Buffer)
	expect.NoError(t, cluster.explainWorkload(t.Context(), "CloneSet", "web", &form{name: "json"}))
	var e ExplainedWorkload
	expect.NoError(t, json.Unmarshal(out.Bytes(), &e))
	if len(e.Waits) != 1 || strings.Join(e.Waits[0].Pods, " ") != "web-waits web-also" || len(e.Pods) != 3 || len(e.Handlers) != 4 {
		t.Errorf("a program reads %+v", e)
	}
}

func expectPrinted(t *testing.T, reason string, out *bytes.Buffer, err error, status int, want []string) {
	t.Helper()
	expect.Equal(t, status, statusOf(err), "exit status: %s", reason)
	if err != nil {
		out.WriteString(err.Error())
	}
	for _, text := range want {
		if !strings.Contains(out.String(), text) {
			t.Errorf("%s: no %q in\n%s", reason, text, out)
		}
	}
}

// TestExplainNode: a person sees what a drain would do, by the answers to evictions that are dry runs.
func TestExplainNode(t *testing.T) {
	t.Parallel()
	hooked := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests,
		Message: `admission webhook "evictions.rollcall.dev" denied the request: ` + evictions.Evacuation + ": pod web-waits is not evicted directly",
	}}
	refused := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "it would violate the pod's disruption budget",
	}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "web", errors.New("no right"))
	unavailable := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "vpod.kb.io" denied the request: pub unavailable allowed is negative`,
	}}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web")
	type row struct {
		reason, node, configuration string
		answers                     map[string]error
		want, not                   []string
		status                      int
	}
	const webhook = configText + "evictions: {enabled: true, limit: 5m}\n"
	expect.Each(t, map[string]row{
		"all answers": {
			"each pod has its own", "node-1", webhook, map[string]error{"web-waits": hooked, "web-also": refused, "web-serves": nil},
			[]string{
				"A drain of node node-1 evicts 3 pods that Rollcall manages. The longest of their drains takes 1m30s at most.\n",
				"Each eviction was tried alone.", "From 5m0s after a pod's first eviction", "prod/web-waits leaves by its hooks: pod web-waits is not evicted directly.\n",
				"prod/web-also is not evicted now: it would violate the pod's disruption budget.\n  leaves: default web 10.0.0.1:80\n  drains: 1m30s at most\n",
				"prod/web-serves is evicted immediately: mind the claims.\n  leaves: default web 10.0.0.1:80\n\n",
			}, []string{"stranger", "denied the request"}, exitOK,
		},
		"a budget of OpenKruise's": {
			"its webhook refuses with 403, which is no lack of rights", "node-1", webhook,
			map[string]error{"web-waits": unavailable, "web-also": unavailable, "web-serves": hooked},
			[]string{"prod/web-waits is not evicted now: pub unavailable allowed is negative.\n", "prod/web-serves leaves by its hooks"},
			[]string{"may not evict", "tried alone"}, exitOK,
		},
		"without the webhook": {
			"evictions bypass the hooks", "node-1", configText, nil, []string{"evictions.enabled is not set in the configuration"}, []string{"5m0s", "drains:"}, exitOK,
		},
		"without the right to evict": {
			"the rest is shown", "node-1", webhook, map[string]error{"web-waits": forbidden, "web-also": forbidden, "web-serves": forbidden},
			[]string{"because you may not evict them: ", "prod/web-serves could not be asked.\n  leaves: default web 10.0.0.1:80\n"}, nil, exitOK,
		},
		"a pod that goes meanwhile": {
			"there is nothing to drain", "node-1", webhook, map[string]error{"web-waits": gone, "web-also": hooked, "web-serves": hooked},
			[]string{"evicts 2 pods"}, []string{"prod/web-waits"}, exitOK,
		},
		"of another installation": {
			"another webhook answers about it", "node-1", webhook + "namespaces: [pay]\n", nil, []string{"Node node-1 has no pods that Rollcall manages."}, nil, exitOK,
		},
		"an empty node": {"a drain is no matter", "node-2", webhook, nil, []string{"Node node-2 has no pods that Rollcall manages."}, nil, exitOK},
		"no node":       {"a slip", "node-3", webhook, nil, []string{"the cluster has no node node-3"}, nil, exitNotFound},
	}, func(t *testing.T, c row) {
		cluster, out := aWorkload(t, c.configuration)
		cluster.evict = func(_ context.Context, pod *corev1.Pod) (string, error) {
			if pod.Name == "stranger" {
				t.Error("a pod that is not Rollcall's is asked about")
			}
			if c.answers[pod.Name] != nil {
				return "", c.answers[pod.Name]
			}
			return "mind the claims", nil
		}
		err := cluster.explainNode(t.Context(), c.node, &form{})
		expectPrinted(t, c.reason, out, err, c.status, c.want)
		for _, text := range c.not {
			if strings.Contains(out.String(), text) {
				t.Errorf("%s: %q in\n%s", c.reason, text, out)
			}
		}
	})
}

// TestDrainOfDaemonSets: a person learns what kubectl drain does with OpenKruise's.
func TestDrainOfDaemonSets(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{"DaemonSet": true, "CloneSet": false, "": false} {
		pod := scene{state: appspub.LifecycleStateNormal, ready: true}.pod(t)
		pod.OwnerReferences = nil
		if kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: kind, Name: "web", Controller: new(true)}}
		}
		all := drainSentences([]EvictedPod{{Pod: Pod{facts: facts{pod: lifecycle.PodOf(pod)}}, Eviction: Eviction{Answer: Allowed}}})
		if got := len(all) == 1 && strings.Contains(all[0], `daemonsets.apps "web" not found`); got != want || !want && len(all) > 0 {
			t.Errorf("owner %q: %q", kind, all)
		}
	}
}
