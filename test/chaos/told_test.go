package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/registry"
	nacosdriver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestToldToRestart reads Events as the driver writes them: one Nacos server has misread a service, and another serves.
func TestToldToRestart(t *testing.T) {
	t.Parallel()
	endpoint := drivertest.Answering(t, http.StatusBadRequest, nil,
		"Current service DEFAULT_GROUP@@web is ephemeral service, can't register persistent instance.")
	d := drivertest.Open[*nacosdriver.Registry](t, nacosdriver.New, registry.Config{Endpoint: endpoint, Options: []byte(`{"apiVersion":"v1"}`)})
	said := d.Register(t.Context(), registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: 80, Cluster: "test", Namespace: "shop", Pod: "web-1", UID: "uid-1",
	})
	expect.Error(t, "Nacos has refused it", said, misread)
	now := time.Now()
	at := func(message string, at time.Time) corev1.Event {
		return corev1.Event{Message: message, EventTime: metav1.NewMicroTime(at)}
	}
	type row struct {
		reason    string
		event     corev1.Event
		restarted time.Time
		want      []int
	}
	expect.Each(t, map[string]row{
		"asked":     {"what a person would do", at(said.Error(), now), time.Time{}, []int{1}},
		"again":     {"it has misread the service once more", at(said.Error(), now), now.Add(-time.Second), []int{1}},
		"done":      {"the Event was written before", at(said.Error(), now), now.Add(time.Second), nil},
		"other":     {"it is about something else", at(strings.ReplaceAll(said.Error(), "restart", "stop"), now), time.Time{}, nil},
		"elsewhere": {"it is about a server that is not one of these", at("restart the Nacos servers that refuse: http://10.9.9.9:8848/nacos answered 400", now), time.Time{}, nil},
	}, func(t *testing.T, r row) {
		got := toldToRestart([]corev1.Event{r.event}, misread, []string{"http://127.0.0.1:1", endpoint}, []time.Time{{}, r.restarted})
		expect.Equal(t, r.want, got, "%s", r.reason)
	})
}
