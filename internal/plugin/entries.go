package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

const (
	// answerWithin bounds how long a person waits for a manager that does not answer.
	answerWithin = 5 * time.Second
	// metricsPort is what the manifests call the port that has the status page.
	metricsPort = "metrics"
)

// known asks the manager that leads what it knows of the pods. An empty namespace means all. A watch does
// not ask a manager again that has not answered in time: each view would take as long.
func (c *cluster) known(ctx context.Context, w *world, namespace string) (answer entries.Answer, err error) {
	if w.unled != nil {
		return answer, w.unled
	}
	holder := *w.lease.Spec.HolderIdentity
	if silent := c.silent[holder]; silent != nil {
		return answer, silent
	}
	limited, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	name, err := c.ask(limited, w.lease, entries.Path, map[string]string{entries.ParameterNamespace: namespace}, &answer)
	switch {
	case err != nil && limited.Err() != nil:
		c.silent = map[string]error{holder: err}
		return entries.Answer{}, err
	case err != nil:
		return entries.Answer{}, err
	case answer.Withheld != "":
		return entries.Answer{}, fmt.Errorf("the manager %s shows you no pods: %s", name, answer.Withheld)
	case !answer.Leads:
		return entries.Answer{}, fmt.Errorf("the manager %s does not lead any more: try again", name)
	}
	return answer, nil
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
	case apierrors.IsNotFound(err):
		return name, fmt.Errorf("the leader %s is not a pod in namespace %s: it has ended, or runs outside the cluster", name, c.installation)
	case err != nil:
		return name, fmt.Errorf("reading the manager's pod: %w", err)
	}
	text, err := c.answered(ctx, &pod, path, parameters)
	if err != nil {
		return name, err
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return name, fmt.Errorf("reading what the manager %s answered: %w", name, err)
	}
	return name, nil
}

var errOthersHeld = errors.New("does not hold back the removals of its last Event by now")

// held asks the manager which removals those with the digest are.
func (c *cluster) held(ctx context.Context, lease *coordinationv1.Lease, digest string) (*orders.Held, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var page entries.Page
	name, err := c.ask(ctx, lease, entries.PagePath, nil, &page)
	if err != nil {
		return nil, err
	}
	for _, r := range page.Registries {
		if r.Held != nil && r.Held.Digest == digest {
			return r.Held, nil
		}
	}
	return nil, fmt.Errorf("manager %s %w: %s makes it check again", name, errOthersHeld, c.again("resync"))
}

// proxyError explains why a manager did not answer.
func (c *cluster) proxyError(err error, name string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err):
		return c.lacks("pods or pods/proxy")
	case apierrors.IsNotFound(err):
		return noPage(name)
	default:
		return fmt.Errorf("asking the manager %s: %w", name, err)
	}
}

func noPage(name string) error {
	return fmt.Errorf("the manager %s runs with statusPage: false, or is older than this plugin", name)
}

// lacks reports which role has a right to what is the managers'.
func (c *cluster) lacks(resource string) error {
	return &exitError{exitForbidden, fmt.Errorf("you lack the right to get %s in namespace %s: the Role rollcall-status-reader of "+
		"config/components/plugin-roles, pluginRoles.enabled in the chart, has it", resource, c.installation)}
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

// registryOf shows in a word what the registries have of a pod.
func registryOf(p Pod) string {
	if p.facts.unasked {
		return "?"
	}
	var words []string
	for _, e := range p.Entries {
		state := string(cmp.Or(e.State, "unknown"))
		if word := strings.ToUpper(state[:1]) + state[1:]; !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return dash(strings.Join(words, ","))
}

// byNow is what the manager knows of a recorded instance, if that differs from what the registry acknowledged.
func byNow(p Pod, in lifecycle.Key) string {
	i := slices.IndexFunc(p.Entries, func(e entries.Entry) bool { return isOf(e, in) })
	switch {
	case i < 0 && p.Rotation == In:
		return ", but the manager knows of no such entry"
	case i < 0 || agrees(p.Entries[i], p.Rotation):
		return ""
	case p.Entries[i].State == entries.Unacknowledged:
		return ", but has not acknowledged a later change yet"
	default:
		return fmt.Sprintf(", but now has it %s", wordsOf(p.Entries[i].State))
	}
}

func isOf(e entries.Entry, in lifecycle.Key) bool {
	return e.Registry == in.Registry && e.Writer == string(in.Writer) && e.Service == string(in.Service) &&
		e.Endpoint == net.JoinHostPort(in.Address, strconv.Itoa(in.Port))
}

func agrees(e entries.Entry, r Rotation) bool {
	return e.State == entries.In && r == In || e.State == entries.Out && r == Out
}

func wordsOf(s entries.State) string {
	return cmp.Or(map[entries.State]string{
		entries.In: "in rotation", entries.Out: "out of rotation", entries.Unacknowledged: "with a change that it has not acknowledged",
	}[s], fmt.Sprintf("in a state that this version of the plugin does not know, %q", s))
}

// registrySentences explain what each registry has of the pod, or why that is not known. They leave out what is in [byNow]'s.
func registrySentences(p Pod, unknown error) []string {
	if unknown != nil {
		return []string{fmt.Sprintf("The registries' entries are not shown, and the reason is only what the pod shows: %s.", unknown)}
	}
	var lines []string
	for _, e := range p.Entries {
		recorded := slices.ContainsFunc(p.Instances, func(in lifecycle.Key) bool { return isOf(e, in) })
		if !recorded || agrees(e, p.Rotation) {
			lines = append(lines, fmt.Sprintf("According to the manager, registry %s has %s at %s %s.",
				lifecycle.Source{Registry: e.Registry, Writer: lifecycle.Writer(e.Writer)}, e.Service, e.Endpoint, wordsOf(e.State)))
		}
	}
	if len(p.Entries) == 0 && (len(p.Instances) == 0 || p.Rotation != In) {
		return []string{"According to the manager, no registry has an entry for it."}
	}
	return lines
}
