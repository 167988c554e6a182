package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/statuspage"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// TestStatusPage: a person sees a pod that waits for a registry which is down, and why; and sees it leave the page.
func TestStatusPage(t *testing.T) {
	t.Parallel()
	s := alone(t, "statuspage", labels, nil, "--status-page")
	pod := s.Begin(replicas(2))[0]
	s.awaitPage("both pods in rotation", func(p statuspage.Snapshot) bool {
		return len(p.Pods) == 0 && len(p.Services) == 1 && p.Services[0].In == 2 && p.Registries[0].Resynced != nil
	})

	repair := s.Fail(fakeregistry.OpDeregister, "<b>out of order</b>")
	s.DeleteByLabel(pod)
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	s.awaitPage("the pod and why it waits", func(p statuspage.Snapshot) bool {
		return slices.ContainsFunc(p.Pods, func(one statuspage.Pod) bool {
			return one.Name == pod.Name && one.Hook == "preDelete" && one.Reason == "RegistryUnavailable" && one.Warning &&
				strings.Contains(one.Message, "<b>out of order</b>") && len(one.Instances) == 1
		})
	})
	code, page, err := s.manager.Get(s.Context(), manager.MetricsServer, "/status?q="+pod.Name)
	s.must(err)
	s.Expect(code == http.StatusOK && strings.Contains(page, "<b>"+pod.Name+"</b>") && !strings.Contains(page, "<b>out of order</b>"),
		"the page shows the pod, and the registry's words as text: %s", page)

	repair()
	s.AwaitGone(pod)
	s.ExpectSteady()
	s.awaitPage("the pod gone and another in its place", func(p statuspage.Snapshot) bool {
		return len(p.Pods) == 0 && len(p.Services) == 1 && p.Services[0].In == 2 && p.Services[0].Out+p.Services[0].Unacknowledged == 0
	})
}

// awaitPage returns once the manager's page shows it.
func (s *scenario) awaitPage(what string, shows func(statuspage.Snapshot) bool) {
	s.Helper()
	s.await("the status page to show "+what, func() error {
		_, body, err := s.manager.Get(s.Context(), manager.MetricsServer, "/status.json")
		if err != nil {
			return err
		}
		var page statuspage.Snapshot
		if err := json.Unmarshal([]byte(body), &page); err != nil || !shows(page) {
			return fmt.Errorf("it shows %s (%w)", body, err)
		}
		return nil
	})
}
