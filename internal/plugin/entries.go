package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/internal/steer"
)

const (
	// answerWithin bounds how long a person waits for a manager that does not answer.
	answerWithin = 5 * time.Second
	// metricsPort is what the manifests call the port that has the status page.
	metricsPort = "metrics"
)

// known asks the manager that leads what it knows of the registries, over the API server's proxy. An empty namespace means all.
func (c *cluster) known(ctx context.Context, w *world, namespace string) (map[types.UID][]entries.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if w.unled != nil {
		return nil, w.unled
	}
	var answer entries.Answer
	name, err := c.ask(ctx, w.lease, entries.Path, map[string]string{entries.ParameterNamespace: namespace}, &answer)
	switch {
	case err != nil:
		return nil, err
	case !answer.Leads:
		return nil, fmt.Errorf("the manager %s does not lead any more: try again", name)
	}
	return answer.Pods, nil
}

// ask reads what the manager that holds the Lease answers, and returns its name.
func (c *cluster) ask(
	ctx context.Context, lease *coordinationv1.Lease, path string, parameters map[string]string, answer any,
) (name string, err error) {
	name, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	var pod corev1.Pod
	err = c.Get(ctx, client.ObjectKey{Namespace: c.installation, Name: name}, &pod)
	switch {
	case apierrors.IsForbidden(err):
		return name, c.proxyError(err, name)
	case err != nil:
		return name, fmt.Errorf("reading the manager's pod: %w", err)
	}
	port := portOf(&pod)
	if port == "" {
		return name, fmt.Errorf("the manager's pod %s has no port with the name %s", name, metricsPort)
	}
	text, err := c.pods.Pods(c.installation).ProxyGet("http", name, port, path, parameters).DoRaw(ctx)
	if err := c.proxyError(err, name); err != nil {
		return name, err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return name, fmt.Errorf("reading what the manager %s answered: %w", name, err)
	}
	return name, nil
}

// held asks the manager which removals those with the digest are.
func (c *cluster) held(ctx context.Context, lease *coordinationv1.Lease, digest string) (*steer.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var page struct {
		Registries []struct {
			Held *steer.Held `json:"heldRemovals"`
		} `json:"registries"`
	}
	name, err := c.ask(ctx, lease, entries.PagePath, nil, &page)
	if err != nil {
		return nil, err
	}
	for _, r := range page.Registries {
		if r.Held != nil && r.Held.Digest == digest {
			return r.Held, nil
		}
	}
	return nil, fmt.Errorf("the manager %s holds back others by now, or is older than this plugin", name)
}

// proxyError says why a manager did not answer.
func (c *cluster) proxyError(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return &exitError{exitForbidden, fmt.Errorf(
			"you may not get pods/proxy in namespace %s, or not the pods there: the Role rollcall-status-reader, which comes with the "+
				"status page, allows both", c.installation)}
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the manager %s runs without --status-page, or is older than this plugin", name)
	case apierrors.IsBadRequest(err):
		return fmt.Errorf("the manager %s runs with --metrics-secure, and the API server's proxy does not pass on who asks: "+
			"forward the pod's port and read it with a token, as docs/status-page.md says", name)
	default:
		return fmt.Errorf("asking the manager %s: %w", name, err)
	}
}

func portOf(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == metricsPort {
				return strconv.Itoa(int(port.ContainerPort))
			}
		}
	}
	return ""
}

// registryOf says in a word what the registries say of a pod.
func registryOf(all []entries.Entry) string {
	var words []string
	for _, e := range all {
		state := string(cmp.Or(e.State, "unknown"))
		if word := strings.ToUpper(state[:1]) + state[1:]; !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return dash(strings.Join(words, ","))
}

// registrySentences say what each registry says of the pod, or why that is not known.
func registrySentences(p Pod, unknown error) []string {
	if unknown != nil {
		return []string{fmt.Sprintf("What the registries say now is not shown: %s.", unknown)}
	}
	var lines []string
	for _, e := range p.Entries {
		says := cmp.Or(map[entries.State]string{
			entries.In: "in rotation", entries.Out: "out of rotation", entries.Unacknowledged: "with a change that it has not acknowledged",
		}[e.State], fmt.Sprintf("in a state that this version of the plugin does not know, %q", e.State))
		lines = append(lines, fmt.Sprintf("As the manager knows it, registry %s has %s at %s %s.", e.Registry, e.Service, e.Endpoint, says))
	}
	if len(lines) == 0 {
		return []string{"As the manager knows it, no registry has an entry of it."}
	}
	return lines
}
