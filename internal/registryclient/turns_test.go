package registryclient

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAnotherNamespaceIsNextButAFew: whatever one team has waiting, the urgent call of another begins after the few calls that were woken
// before it.
func TestAnotherNamespaceIsNextButAFew(t *testing.T) {
	t.Parallel()
	type row struct {
		reason                       string
		namespaces, services, urgent int
		// most is how many calls of the others may begin first.
		most int
	}
	bubble.Each(t, map[string]row{
		"one service":             {"it has its share, and no more", 1, 1, 400, 1},
		"fifty services":          {"they share what their namespace has", 1, 50, 400, 1},
		"five hundred services":   {"very many are not compared, and none of them counts alone", 1, 500, 500, 1},
		"ten namespaces":          {"each of the others has its turn first at most once", 10, 5, 400, 10},
		"calls that are not":      {"they come last anyway", 1, 50, 0, 1},
		"a mixture of both kinds": {"the same", 3, 20, 200, 3},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, 20)
		const calls = 500
		for i := range calls {
			name := fmt.Sprintf("team-%d:svc-%d/%d", i%tc.namespaces, i%tc.services, i)
			if i < tc.urgent {
				name += "!"
			}
			w.come(name)
		}
		w.come("other:web/1!")
		first := 0
		for range calls {
			if slices.Contains(w.underWay(), "other:web/1") {
				break
			}
			w.answer(nil, w.underWay()[0])
			for _, name := range w.takeWoken() {
				if w.come(name); name != "other:web/1!" {
					first++
				}
			}
		}
		if first > tc.most {
			t.Errorf("%d calls of the others began before, want at most %d: %s", first, tc.most, tc.reason)
		}
		w.Client.limit.close()
		w.answer(nil, w.underWay()...)
		w.expectEmpty()
	})
}

// TestNamespaceLeavesSlots: a namespace whose calls hang holds up no other.
func TestNamespaceLeavesSlots(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"seven eighths for one": func(t *testing.T) {
			w := newWorld(t, 16)
			for i := range 20 {
				w.come(fmt.Sprintf("shop:svc-%d/%d!", i, i))
			}
			expect.Equal(t, 14, len(w.underWay()), "calls of one namespace are under way")
			w.come("other:web/1!", "other:web/2!")
			expect.Equal(t, 16, len(w.underWay()), "calls are under way")
			w.Client.limit.close()
			w.answer(nil, w.underWay()...)
		},
		"half while another waits": func(t *testing.T) {
			w := newWorld(t, 16)
			for i := range 10 {
				w.come(fmt.Sprintf("shop:svc-%d/%d!", i, i), fmt.Sprintf("other:svc-%d/%d!", i, i))
			}
			w.come("shop:new/1!")
			shop := 0
			for _, id := range w.underWay() {
				if id[:5] == "shop:" {
					shop++
				}
			}
			if shop != 8 {
				t.Errorf("%d calls of one namespace are under way, want half of 16", shop)
			}
			w.Client.limit.close()
			w.answer(nil, w.underWay()...)
		},
	})
}
