package main

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// misread is what an Event asks for if a Nacos server that has started holds a persistent service for an ephemeral one
	// (alibaba/nacos#10920): it refuses each registration until it is restarted.
	misread = "restart the Nacos servers that refuse"
	// toldEvery is how often Events are read that ask for something.
	toldEvery = time.Second
)

// restartAsTold restarts servers until ctx ends, as the person does whom an Event asks for that. Else the registry's fault counts as
// Rollcall's.
func (s *servers) restartAsTold(ctx context.Context, g *game) {
	restarted := make([]time.Time, len(s.endpoints))
	for ; ctx.Err() == nil; wait.Pause(ctx, toldEvery) {
		var events corev1.EventList
		if g.k8s.List(ctx, &events) != nil {
			continue // the API server is away
		}
		for _, server := range toldToRestart(events.Items, s.told, s.endpoints, restarted) {
			s.say("an Event asks to restart server %d", server)
			if err := s.restart(ctx, g, server); err != nil && ctx.Err() == nil {
				s.say("could not restart server %d: %v", server, err)
				continue
			}
			restarted[server] = time.Now()
		}
	}
}

// restart waits until no fault lasts: there are never two at once.
func (s *servers) restart(ctx context.Context, g *game, server int) error {
	g.lasting.Lock()
	defer g.lasting.Unlock()
	_, err := s.one(ctx, server, s.cluster.Members()[server].Restart)
	return err
}

// toldToRestart are the servers that refuse something by an Event that asks to restart those, and was written after they were.
func toldToRestart(events []corev1.Event, told string, endpoints []string, restarted []time.Time) (servers []int) {
	for server, endpoint := range endpoints {
		for i := range events {
			e := &events[i]
			written := e.LastTimestamp.Time
			if e.EventTime.After(written) {
				written = e.EventTime.Time
			}
			if s := e.Series; s != nil && s.LastObservedTime.After(written) {
				written = s.LastObservedTime.Time
			}
			if strings.Contains(e.Message, told) && strings.Contains(e.Message, network.HostPort(endpoint)+"/") && written.After(restarted[server]) {
				servers = append(servers, server)
				break
			}
		}
	}
	return servers
}
