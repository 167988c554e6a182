package gate

// slots counts what is taken of a number, which may change to one below that.
type slots struct {
	limit, perService, forOthers int

	total, others int
	byService     map[string]int
}

func newSlots(limit int) slots {
	s := slots{byService: map[string]int{}}
	s.resize(limit)
	return s
}

func (s *slots) resize(limit int) {
	s.limit, s.perService, s.forOthers = limit, max(limit/2, 1), limit-limit/4
}

// room reports whether there is a slot for the caller.
func (s *slots) room(c Caller) bool {
	return s.total < s.limit && s.byService[c.Service] < s.perService && (c.Urgent || s.others < s.forOthers)
}

func (s *slots) take(c Caller) { s.count(c, 1) }

func (s *slots) free(c Caller) { s.count(c, -1) }

func (s *slots) count(c Caller, n int) {
	s.total += n
	if !c.Urgent {
		s.others += n
	}
	if s.byService[c.Service] += n; s.byService[c.Service] == 0 {
		delete(s.byService, c.Service)
	}
}
