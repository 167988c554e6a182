package nacos

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUnprobedIsReadAgain before Nacos can have forgotten it.
func TestUnprobedIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var u unprobed
		web, other := serviceCluster{service: "web"}, serviceCluster{service: "web", namespace: "other"}
		for range 2 {
			u.add(web)
			time.Sleep(unprobedFor - time.Second)
			u.add(other)
			if !u.has(web) || !u.has(other) {
				t.Error("what was read a moment ago is read again")
			}
			time.Sleep(time.Second)
			if u.has(web) || u.has(other) {
				t.Error("what was read long ago is not read again")
			}
		}
	})
}
