package app

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rollcall-dev/rollcall/internal/endpointslice"
)

const (
	rightsInterval = 10 * time.Second
	rightsTimeout  = 10 * time.Second
)

// Features, as the configuration and the command line have them.
const (
	featureEnroll        = "enroll"
	featurePodCondition  = "podCondition"
	featureEvictions     = "evictions"
	featureEndpointSlice = "driver " + endpointslice.Name
	featureSecureMetrics = "--metrics-secure"
)

// right is what the manager must be allowed.
type right struct {
	verb, group, resource string
	place                 place
}

// place is where a right counts: in the whole cluster, in each namespace of the pods, or for the objects of the webhook's name, in the
// cluster or in the manager's namespace.
type place int

const (
	inCluster place = iota
	atPods
	webhookInCluster
	webhookHere
)

// need is what a feature waits for.
type need struct {
	feature, component string
	rights             []right
	// there is closed once the manager has all rights.
	there chan struct{}
	// lacks is what is missing, as far as known; nil if nothing is.
	lacks atomic.Pointer[string]
	// event is about those that are missing.
	event lasting
}

// needs returns what the features that are on need, in addition to what every manager has. The right to update the webhook's Secret
// is not among them: with cert-manager the manager lacks it, and does not need it.
func (a *app) needs() (needs []*need) {
	const slices = "endpointslices"
	const admission, webhooks = "admissionregistration.k8s.io", "mutatingwebhookconfigurations"
	for _, n := range []struct {
		feature, component string
		on                 bool
		rights             []right
	}{
		{featureEnroll, "enroll", a.features.Enroll, []right{{"patch", "apps.kruise.io", "clonesets", atPods}}},
		{featurePodCondition, "pod-condition", a.features.PodCondition, []right{{"patch", "", "pods/status", atPods}}},
		{featureEndpointSlice, endpointslice.Name, a.options.slices.Wanted(), []right{
			{"list", discoveryv1.GroupName, slices, atPods}, {"watch", discoveryv1.GroupName, slices, atPods},
		}},
		{featureEvictions, "evictions", a.features.Evictions.Enabled, []right{
			{"list", "policy", "poddisruptionbudgets", atPods}, {"get", "policy.kruise.io", "podunavailablebudgets", atPods},
			{"get", admission, webhooks, webhookInCluster}, {"patch", admission, webhooks, webhookInCluster}, {"get", "", "secrets", webhookHere},
		}},
		{featureSecureMetrics, "prometheus", a.flags.metrics.secure, []right{
			{"create", "authentication.k8s.io", "tokenreviews", inCluster}, {"create", "authorization.k8s.io", "subjectaccessreviews", inCluster},
		}},
	} {
		if n.on {
			needs = append(needs, &need{
				feature: n.feature, component: n.component, rights: n.rights, there: make(chan struct{}),
				event: lasting{action: "Start", reason: "RightsMissing"},
			})
		}
	}
	return needs
}

// rights asks for the rights of the features again and again, until they are there. No feature holds anything else up meanwhile.
type rights struct {
	// server asks whether or not this manager leads.
	server     client.Client
	namespaces []string
	webhook    string
	needs      []*need
	events     *configEvents
	logger     logr.Logger

	// failure is the last error of the API server that was logged.
	failure string
}

// of returns what is closed once the feature has its rights; nil, which never is, if it is off.
func (r *rights) of(feature string) <-chan struct{} {
	for _, n := range r.needs {
		if n.feature == feature {
			return n.there
		}
	}
	return nil
}

// lacking returns which rights a feature waits for, as far as known; nil if the feature is off.
func (r *rights) lacking(feature string) func() string {
	for _, n := range r.needs {
		if n.feature == feature {
			return func() string { return ptr.Deref(n.lacks.Load(), "") }
		}
	}
	return nil
}

// NeedLeaderElection makes it run without the lease: every manager serves the webhook.
func (*rights) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (r *rights) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, rightsInterval, true, func(ctx context.Context) (bool, error) { return r.once(ctx), nil })
	return nil
}

// once reports whether every feature has its rights.
func (r *rights) once(ctx context.Context) bool {
	all := true
	for _, n := range r.needs {
		if isClosed(n.there) {
			continue
		}
		missing, err := r.missing(ctx, n)
		switch {
		case err != nil:
			if text := err.Error(); text != r.failure && ctx.Err() == nil {
				r.logger.Error(err, "failed to ask which rights the manager has; features wait for the answer")
				r.failure = text
			}
			all = false
		case missing == "":
			if n.event.note != "" {
				r.logger.Info("the rights of a feature are there", "feature", n.feature)
			}
			n.lacks.Store(nil)
			close(n.there)
		default:
			n.tell(missing, r.logger)
			n.event.make(ctx, r.events)
			all = false
		}
	}
	return all
}

// tell logs what is missing if that is new.
func (n *need) tell(missing string, logger logr.Logger) {
	brought := "which the chart brings with config." + n.feature
	switch {
	case strings.HasPrefix(n.feature, "--"):
		brought = "which the chart brings with the flag"
	case n.feature == featureEndpointSlice:
		brought = "which the chart brings with the driver"
	}
	note := fmt.Sprintf("%s waits for rights that the manager lacks: %s. Apply config/components/%s, %s.",
		n.feature, missing, n.component, brought)
	n.lacks.Store(&note)
	if note == n.event.note {
		return
	}
	logger.Info("a feature waits for rights: apply its component", "feature", n.feature, "missing", missing, "component",
		"config/components/"+n.component)
	n.event.set(note)
}

// missing lists the rights that the manager lacks.
func (r *rights) missing(ctx context.Context, n *need) (string, error) {
	var missing []string
	for _, one := range n.rights {
		var lacks []string
		for _, namespace := range r.at(one.place) {
			if has, err := allowed(ctx, r.server, one.attributes(namespace, r.webhook)); err != nil {
				return "", err
			} else if !has {
				lacks = append(lacks, namespace)
			}
		}
		if len(lacks) > 0 {
			missing = append(missing, one.text(lacks, r.webhook))
		}
	}
	return strings.Join(missing, "; "), nil
}

// at returns the namespaces to ask about; an empty one means the whole cluster.
func (r *rights) at(p place) []string {
	switch {
	case p == atPods && len(r.namespaces) > 0:
		return r.namespaces
	case p == webhookHere:
		return []string{podNamespace()}
	default:
		return []string{""}
	}
}

func (r right) attributes(namespace, webhook string) authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	of := authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource,
	}
	if r.place == webhookInCluster || r.place == webhookHere {
		of.Name = webhook
	}
	return of
}

func (r right) text(namespaces []string, webhook string) string {
	text := r.verb + " " + r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if name := r.attributes("", webhook).Name; name != "" {
		text += " " + name
	}
	switch {
	case namespaces[0] != "":
		text += " in " + strings.Join(namespaces, ", ")
	case r.place == atPods:
		text += " in all namespaces"
	}
	return text
}

// allowed asks the API server whether this manager may do something.
func allowed(ctx context.Context, server client.Client, what authorizationv1.ResourceAttributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	if err := server.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking for the right to %s %s: %w", what.Verb, what.Resource, err)
	}
	return review.Status.Allowed, nil
}

// after is a runnable that waits for its rights.
type after struct {
	manager.Runnable

	there <-chan struct{}
}

// NeedLeaderElection is that of the runnable.
func (a *after) NeedLeaderElection() bool {
	of, says := a.Runnable.(manager.LeaderElectionRunnable)
	return !says || of.NeedLeaderElection()
}

// Start implements manager.Runnable.
func (a *after) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.there:
		return a.Runnable.Start(ctx)
	}
}
