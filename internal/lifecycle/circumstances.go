package lifecycle

// Circumstances are what a decision rests on that the pod and its workload do not show. With the manager's, anybody decides as it did.
type Circumstances struct {
	KeepUnready bool   `json:"keepUnready,omitempty"`
	Ending      string `json:"ending,omitempty"`
	NodeLost    bool   `json:"nodeLost,omitempty"`
	Blocked     bool   `json:"blocked,omitempty"`
}

// Circumstances returns those of the input.
func (in Input) Circumstances() Circumstances {
	return Circumstances{KeepUnready: in.KeepUnready, Ending: in.Ending, NodeLost: in.NodeLost, Blocked: in.Blocked}
}

// Under returns the input under these circumstances.
func (in Input) Under(c Circumstances) Input {
	in.KeepUnready, in.Ending, in.NodeLost, in.Blocked = c.KeepUnready, c.Ending, c.NodeLost, c.Blocked
	return in
}
