package integration

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/mount"
)

// doorkeeper stands before a registry and knows which token is good.
type doorkeeper struct {
	mu     sync.Mutex
	good   string
	locked bool
}

// Wants has only this token be good from now on. Locked: a client that shows another one has to come back in an hour.
func (d *doorkeeper) Wants(token string, locked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.good, d.locked = token, locked
}

func (d *doorkeeper) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		d.mu.Lock()
		good, locked := token == d.good, d.locked
		d.mu.Unlock()
		switch {
		case good:
			next.ServeHTTP(w, r)
		case locked:
			w.Header().Set("Retry-After", "3600")
			http.Error(w, "too many requests with a bad token", http.StatusTooManyRequests)
		default:
			http.Error(w, "this token is not known", http.StatusUnauthorized)
		}
	})
}

// TestRotatedToken: what waits since the token is no longer good goes on as soon as its file holds the new one, with no
// restart; also where the registry has said to come back in an hour. A pod that waits for nothing costs no call then. A
// file that is wrong changes nothing.
func TestRotatedToken(t *testing.T) {
	t.Parallel()
	const name = "rotated-token"
	door, tokens := &doorkeeper{}, []string{env.credential(), env.credential(), env.credential()}
	door.Wants(tokens[0], false)
	server := startRegistry(t, door.before)
	mounted := mount.New(t, map[string]string{"token": tokens[0] + "\n"})
	config := defaultConfiguration(server.URL(), name)
	config["registry"].(map[string]any)["auth"] = map[string]any{"tokenFile": mounted.Path("token")}
	s := newScenario(t, startManager(t, name, config), server, labels, name)
	s.troubled = true
	s.Begin(inPlace, replicas(2))

	door.Wants(tokens[1], false)
	s.UpdateImage("nginx:2")
	s.ExpectEvent(s.AwaitPodIn(appspub.LifecycleStatePreparingUpdate), corev1.EventTypeWarning, "RegistryRefused", "hook inPlaceUpdate waits", "401")
	mounted.Rotate(map[string]string{"token": tokens[1] + "\n"})
	s.ExpectSteady()

	door.Wants(tokens[2], true)
	pods := s.Pods()
	kept := server.Answers(s.ns, string(pods[1].UID))
	s.DeleteByLabel(pods[0])
	s.ExpectEvent(s.AwaitPodIn(appspub.LifecycleStatePreparingDelete), corev1.EventTypeWarning, "RegistryUnavailable", "hook preDelete waits", "429")
	mounted.Rotate(map[string]string{"token": tokens[2] + "\n"})
	s.ExpectSteady() // an hour is more than anything here waits
	made := server.Answers(s.ns, string(pods[1].UID))[len(kept):]
	s.Expect(len(made) == 0, "calls were made for a pod that is where it was: %v", made)

	mounted.Rotate(map[string]string{"token": tokens[1] + " " + tokens[2] + "\n"})
	s.ExpectMetric("rollcall_config_last_reload_successful 0")
	s.ExpectLogged("registry.auth.tokenFile", "no white space within it")
	s.ScaleTo(3)
	mounted.Rotate(map[string]string{"token": tokens[2] + "\n"})
	s.ExpectMetric("rollcall_config_last_reload_successful 1")
	s.ExpectNothingLeft()
	s.ExpectAlways()
	s.Expect(strings.Count(s.manager.Log(), `"msg":"starting"`) == 1, "the manager was started again")
}
