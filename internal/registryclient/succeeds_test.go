package registryclient

import (
	"testing"
	"testing/synctest"
)

// TestChangesOfOneEndpointWaitForTheClientBefore: credentials were rotated while a removal was under way, and the next pod has the address.
func TestChangesOfOneEndpointWaitForTheClientBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 16)
		before := w.Client
		w.come("web/1")
		w.Client = New(&holding{w}, before.options)
		w.Succeeds(before)
		w.come("web/2@1", "web/3")
		w.expectUnderWay("a registry that looks before it deletes could take the next pod's entry for the one that it saw", "web/1", "web/3")
		w.answer(nil, "web/1", "web/3")
		w.sleep(2 * recheck)
		w.expectWoken("the endpoint is free", "web/2@1")
		w.come("web/2@1")
		w.answer(nil, "web/2@1")
		w.expectEmpty()
	})
}
