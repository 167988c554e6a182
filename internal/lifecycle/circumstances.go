package lifecycle

// Circumstances are what a decision rests on that the pod and its workload do not show. With the manager's, anybody decides as it did.
type Circumstances struct {
	// KeepUnready: a pod in Normal that is not ready is kept.
	KeepUnready bool `json:"keepUnready,omitempty"`
	// Ending is why the pod must be out although it may be ready.
	Ending   string `json:"ending,omitempty"`
	NodeLost bool   `json:"nodeLost,omitempty"`
	// Blocked: the pod can't join (bad annotation, no IP), and stays where it is.
	Blocked bool `json:"blocked,omitempty"`
}
