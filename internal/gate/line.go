package gate

import "container/list"

// line is where callers wait for their turn: one after the other within their service, and the services in turns.
type line struct {
	// services holds those in which somebody waits, the one whose turn is next in front.
	services *list.List
	// turns finds a service in services, and waiting its waiters.
	turns   map[string]*list.Element
	waiting map[string]*list.List
	// places finds a waiter in waiting.
	places map[*waiter]*list.Element
	size   int
}

func newLine() line {
	return line{
		services: list.New(), turns: map[string]*list.Element{}, waiting: map[string]*list.List{},
		places: map[*waiter]*list.Element{},
	}
}

// add puts the waiter behind the others of its service.
func (l *line) add(w *waiter) { l.places[w] = l.of(w.Service).PushBack(w); l.size++ }

// putBack puts the waiter before the others of its service.
func (l *line) putBack(w *waiter) { l.places[w] = l.of(w.Service).PushFront(w); l.size++ }

func (l *line) of(service string) *list.List {
	if l.waiting[service] == nil {
		l.waiting[service] = list.New()
		l.turns[service] = l.services.PushBack(service)
	}
	return l.waiting[service]
}

// take removes and returns the first waiter of the next service that may have a call, or nil.
func (l *line) take(may func(Caller) bool) *waiter {
	for turn := l.services.Front(); turn != nil; turn = turn.Next() {
		w := l.waiting[turn.Value.(string)].Front().Value.(*waiter) //nolint:forcetypeassert // nothing else is in them
		if may(w.Caller) {
			l.services.MoveToBack(turn)
			l.remove(w)
			return w
		}
	}
	return nil
}

func (l *line) remove(w *waiter) {
	others := l.waiting[w.Service]
	others.Remove(l.places[w])
	delete(l.places, w)
	l.size--
	if others.Len() == 0 {
		l.services.Remove(l.turns[w.Service])
		delete(l.turns, w.Service)
		delete(l.waiting, w.Service)
	}
}
