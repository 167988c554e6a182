package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
)

// memoryHolds is registryHolds for a manager with the memory driver, as curl sees it.
func (s *scenario) memoryHolds(pods []*corev1.Pod) error {
	status, body, err := s.manager.Get(s.Context(), manager.MemoryServer, "/v1/instances?cluster="+clusterName)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("the memory registry answers %d: %s", status, body)
	}
	var listing struct{ Instances []registry.Entry }
	if err := json.Unmarshal([]byte(body), &listing); err != nil {
		return err
	}
	elsewhere := func(e registry.Entry) bool { return e.Namespace != s.ns }
	return compareEntries(s.entriesOf(onlyRegistry, pods), slices.DeleteFunc(listing.Instances, elsewhere))
}
