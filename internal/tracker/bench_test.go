package tracker

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// BenchmarkCompareForeign is a list with an entry of others for every other pod of one service, of which one entry changes from list to list. The
// metric is what a pod costs of ten thousand, relative to a pod of a thousand: about 1 if the cost is linear.
func BenchmarkCompareForeign(b *testing.B) {
	const few, many = 1000, 10000
	var takes [2]time.Duration
	worlds := []*foreignWorld{newForeignWorld(few), newForeignWorld(many)}
	for b.Loop() {
		for i, w := range worlds {
			began := time.Now()
			w.compare()
			takes[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(takes[1].Nanoseconds())/float64(b.N)/many, "ns/pod")
	b.ReportMetric(float64(takes[1])/float64(takes[0])*few/many, "ratio")
}

type foreignWorld struct {
	*Tracker

	list Listing
	n    int
}

func newForeignWorld(pods int) *foreignWorld {
	w := &foreignWorld{Tracker: New(), list: Listing{Registry: "default", Names: map[string]bool{"default": true}}}
	for i := range pods {
		in := registry.Instance{
			Service: "web", Address: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Port: 8080, Namespace: "shop",
			Pod: fmt.Sprintf("web-%d", i), UID: fmt.Sprintf("uid-%d", i), Registry: "default",
		}
		target := Target{Registry: "default", Instance: in}
		w.Arrived(target.Pod(), false)
		pod := w.Open(lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: "shop", Name: in.Pod}, UID: types.UID(in.UID)})
		pod.Found(lifecycle.ReachOf(&lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: in.Address}}))
		pod.Begin(target.Key(), lifecycle.InService, in, epoch())
		pod.Acknowledged(target.Key(), epoch())
		w.list.Entries = append(w.list.Entries, registry.Entry{Instance: in, State: registry.InService})
		if i%2 == 0 {
			other := registry.Instance{Service: in.Service, Address: in.Address, Port: in.Port}
			w.list.Foreign = append(w.list.Foreign, registry.Entry{Instance: other, State: registry.Foreign})
		}
	}
	return w
}

func (w *foreignWorld) compare() {
	w.n++
	w.list.Asked = epoch().Add(time.Duration(w.n) * time.Minute)
	w.list.Foreign[0].Service = fmt.Sprint("web-", w.n)
	w.Compare(w.list)
	w.TakeDoubted()
}
