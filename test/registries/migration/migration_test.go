package migration

import (
	"testing"
)

// TestFromEurekaToNacos: services move from one registry to the other under the eyes of their clients. The migrations run at
// the same time, on the same servers.
func TestFromEurekaToNacos(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("all", func(t *testing.T) {
		t.Run("ByAnnotation", func(t *testing.T) { t.Parallel(); byAnnotation(w.begin(t, "by-annotation", fromEureka)) })
		t.Run("ByConfiguration", func(t *testing.T) { t.Parallel(); byConfiguration(w.begin(t, "by-configuration", "")) })
	})
	t.Run("WithoutHeartbeats", func(t *testing.T) { t.Parallel(); withoutHeartbeats(w.begin(t, "without-heartbeats", fromEureka)) })
}

// byAnnotation: the template names the registries, and Kruise updates the pods where they are to have it so.
func byAnnotation(s *story) {
	s.Update("web:2")
	s.ExpectIn(s.eureka)

	s.Name("eureka,nacos")
	s.clientsGoOver()

	s.Name(toNacos)
	s.ExpectIn(s.nacos)
	s.ExpectNoneIn(s.eureka)
	s.Update("web:4")
	s.ExpectIn(s.nacos)
	s.Scale(2)
	s.ExpectIn(s.nacos)
	s.ExpectNothingLost()
}

// byConfiguration: the same by the configuration's defaults, which updates no pod.
func byConfiguration(s *story) {
	s.Update("web:2")
	s.ExpectIn(s.eureka)

	s.defaultsTo(s.T, fromEureka, toNacos)
	s.clientsGoOver()

	s.defaultsTo(s.T, toNacos)
	s.ExpectIn(s.nacos)
	s.ExpectNoneIn(s.eureka)
	s.Update("web:4")
	s.ExpectIn(s.nacos)
	s.ExpectNothingLost()
}

// clientsGoOver from Eureka to Nacos by halves, each of them by way of both, while the pods are in both, are updated, and become more.
func (s *story) clientsGoOver() {
	s.ExpectIn(s.eureka, s.nacos)
	s.clients.firstHalf(s.eureka, s.nacos)
	s.Update("web:3")
	s.ExpectIn(s.eureka, s.nacos)
	s.clients.allLook(s.eureka, s.nacos)
	s.clients.firstHalf(s.nacos)
	s.Scale(4)
	s.ExpectIn(s.eureka, s.nacos)
	s.clients.allLook(s.nacos)
	s.ExpectIn(s.eureka, s.nacos)
}

// withoutHeartbeats: Eureka forgets what is not renewed, so what kept its entries all the while was Rollcall; and what it has
// forgotten is there again when Rollcall is.
func withoutHeartbeats(s *story) {
	s.ExpectNothingLost()
	s.stopManager()
	s.ExpectNoneIn(s.eureka)
	s.startManager(s.T, fromEureka)
	s.ExpectIn(s.eureka)
}
