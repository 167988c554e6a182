package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/shorten"
)

const (
	// configMapName is fixed: the Event about a configuration has to find it.
	configMapName = "rollcall-config"

	// controllerName is the reporter of Events.
	controllerName = "rollcall"

	eventTimeout = 5 * time.Second
	eventFailed  = "failed to create an Event about the configuration"
)

// configEvents are the Events about the ConfigMap. A recorder would take a second refusal for the first one come again.
type configEvents struct {
	// server is nil outside a cluster: there is no ConfigMap.
	server client.Writer
	// elected is closed once this manager leads. Only the leader makes Events, so that each is made once.
	elected <-chan struct{}
	// dryRun is nil but in a dry run, which reports the Events.
	dryRun *dryRun
	logger logr.Logger
}

func (e *configEvents) leads() bool { return isClosed(e.elected) }

// isClosed reports whether elected is closed: whether this manager has begun to lead. One that leads no more ends.
func isClosed(elected <-chan struct{}) bool {
	select {
	case <-elected:
		return true
	default:
		return false
	}
}

// tell makes an Event and tries once: the log has the same content.
func (e *configEvents) tell(ctx context.Context, kind, action, reason, note string) {
	if err := e.create(ctx, kind, action, reason, note); err != nil {
		e.logger.Error(err, eventFailed)
	}
}

// create makes an Event if this manager leads.
func (e *configEvents) create(ctx context.Context, kind, action, reason, note string) error {
	switch {
	case !e.leads():
		return nil
	case e.dryRun != nil:
		e.dryRun.event(kind, reason, note, "configMap", configMapName)
		return nil
	case e.server == nil:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	host, _ := podName() // only for the reader
	return e.server.Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: podNamespace(), GenerateName: configMapName + "-"},
		EventTime:           metav1.NowMicro(),
		ReportingController: controllerName,
		ReportingInstance:   cmp.Or(host, controllerName),
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: podNamespace(), Name: configMapName,
		},
		Action: action, Type: kind, Reason: reason, Note: shorten.Message(note),
	})
}

// lasting is an Event about what stays wrong: the leader makes it, and again after each [reason.EventRepeat]. What is wrong may have
// begun while another manager led, whose own Event may be missing. If the API server does not accept it, it is due at the next try.
type lasting struct {
	action, reason string
	// note shows what is wrong; empty if nothing is.
	note string
	// made is when an Event was made; zero if none was.
	made time.Time
	// failed: making the Event was tried, which is logged once.
	failed bool
}

func (l *lasting) set(note string) { l.note, l.made, l.failed = note, time.Time{}, false }

func (l *lasting) make(ctx context.Context, e *configEvents) {
	if l.note == "" || time.Since(l.made) < reason.EventRepeat || !e.leads() {
		return
	}
	err := e.create(ctx, corev1.EventTypeWarning, l.action, l.reason, l.note)
	switch {
	case err == nil:
		l.made, l.failed = time.Now(), false
	case !l.failed && ctx.Err() == nil:
		l.failed = true
		e.logger.Error(err, eventFailed)
	}
}

// shortNotes makes Events that the API server takes, however much a registry had to say.
type shortNotes struct{ events.EventRecorder }

// Eventf implements events.EventRecorder.
func (s *shortNotes) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	s.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", shorten.Message(fmt.Sprintf(note, args...)))
}

// podName is the name of the pod that this process runs in. The host's is another on the network of the node; outside a cluster it is
// all that there is.
func podName() (string, error) {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name, nil
	}
	return os.Hostname() //nolint:wrapcheck // its callers add what it is for
}

// podNamespace is the namespace of the pod that this process runs in; empty outside a cluster.
func podNamespace() string { return os.Getenv("POD_NAMESPACE") }
