package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/bubble"
)

// TestReadersReadWhatTheyMay: the right to one path gives no other, and nobody reads by another's token.
func TestReadersReadWhatTheyMay(t *testing.T) {
	t.Parallel()
	type ask struct {
		token, method, path string
		after               time.Duration
		want                int
	}
	type row struct {
		reason string
		// rights are like "alice get /metrics", or of a group, and end after a minute if they begin with "a minute: ".
		rights []string
		asks   []ask
	}
	const get, post = http.MethodGet, http.MethodPost
	bubble.Each(t, map[string]row{
		"another path": {"Prometheus needs no status page", []string{"alice get /metrics"}, []ask{
			{"alices", get, "/metrics", 0, http.StatusOK}, {"alices", get, "/status", 0, http.StatusForbidden}, {"alices", get, "/metrics", 0, http.StatusOK},
		}},
		"each path by its right": {"a person has two rights", []string{"alice get /metrics", "alice get /status"}, []ask{
			{"alices", get, "/metrics", 0, http.StatusOK}, {"alices", get, "/status", 0, http.StatusOK}, {"alices", get, "/status.json", 0, http.StatusForbidden},
		}},
		"another method": {"to read is not to write", []string{"alice get /metrics"}, []ask{
			{"alices", get, "/metrics", 0, http.StatusOK}, {"alices", post, "/metrics", 0, http.StatusForbidden},
		}},
		"another token": {"one reader was admitted", []string{"alice get /metrics"}, []ask{
			{"alices", get, "/metrics", 0, http.StatusOK}, {"bobs", get, "/metrics", 0, http.StatusForbidden}, {"forged", get, "/metrics", 0, http.StatusUnauthorized},
		}},
		"by a group": {"roles are bound to groups too", []string{"monitoring get /metrics"}, []ask{
			{"alices", get, "/metrics", 0, http.StatusOK}, {"bobs", get, "/metrics", 0, http.StatusForbidden},
		}},
		"no token": {"anyone in the cluster can reach the port", []string{"alice get /metrics"}, []ask{{"", get, "/metrics", 0, http.StatusUnauthorized}}},
		"a right that was revoked": {"an admission lasts a minute", []string{"a minute: alice get /metrics"}, []ask{
			{"alices", get, "/metrics", 59 * time.Second, http.StatusOK}, {"alices", get, "/metrics", 61 * time.Second, http.StatusForbidden},
		}},
	}, func(t *testing.T, tc row) {
		began := time.Now()
		server := interceptor.NewClient(clientfake.NewFakeClient(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				switch review := object.(type) {
				case *authenticationv1.TokenReview:
					review.Status.User, review.Status.Authenticated = userOf(review.Spec.Token)
				case *authorizationv1.SubjectAccessReview:
					review.Status.Allowed = mayRead(review.Spec, tc.rights, time.Since(began))
				}
				return nil
			},
		})
		reached := 0
		s := (&reviews{}).readers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
		s.server = server
		for i, one := range tc.asks {
			time.Sleep(one.after)
			before, answer := reached, httptest.NewRecorder()
			s.ServeHTTP(answer, request(t, one.method, one.path, one.token))
			if answer.Code != one.want || (reached > before) != (one.want == http.StatusOK) {
				t.Errorf("request %d, %s %s with token %q: got %d, and the page was made: %t, want %d\nreason: %s",
					i, one.method, one.path, one.token, answer.Code, reached > before, one.want, tc.reason)
			}
		}
	})
}

// TestReadersSeePodsWhereTheyMayListThem: each is shown their own namespaces, the API server is asked little about it, and who asks much
// takes nothing from others.
func TestReadersSeePodsWhereTheyMayListThem(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"pods": func(t *testing.T) {
			asked := 0
			server := interceptor.NewClient(clientfake.NewFakeClient(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
					switch review := object.(type) {
					case *authenticationv1.TokenReview:
						review.Status.User, review.Status.Authenticated = userOf(review.Spec.Token)
					case *authorizationv1.SubjectAccessReview:
						of := review.Spec.ResourceAttributes
						if of != nil {
							asked++
						}
						review.Status.Allowed = of == nil || of.Verb == "list" && of.Resource == "pods" &&
							review.Spec.User+" in "+of.Namespace == "alice in shop"
					}
					return nil
				},
			})
			var refusal string
			s := (&reviews{}).readers(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				refusal = mayListPods(r, r.URL.Query().Get("namespace"))
			}))
			s.server = server
			expect := func(why, token, namespace, want string) {
				t.Helper()
				refusal = "not reached"
				s.ServeHTTP(httptest.NewRecorder(), request(t, http.MethodGet, "/status?namespace="+namespace, token))
				if refusal != want {
					t.Errorf("%s in %q: %q, want %q\nwhy: %s", token, namespace, refusal, want, why)
				}
			}
			expect("the namespace is theirs", "alices", "shop", "")
			expect("another's", "alices", "bank", "alice may not list pods in namespace bank")
			expect("a tenant may not see all", "alices", "", "alice may not list pods in all namespaces: choose one namespace in which they may")
			expect("by alice's right bob sees nothing", "bobs", "shop", "bob may not list pods in namespace shop")
			for range 50 {
				time.Sleep(time.Second)
				expect("a reader who stays", "alices", "shop", "")
			}
			if asked != 4 {
				t.Errorf("the API server was asked %d times, want once for each reader and namespace", asked)
			}
			for i := range 100 {
				s.ServeHTTP(httptest.NewRecorder(), request(t, http.MethodGet, fmt.Sprintf("/status?namespace=%d", i), "bobs"))
			}
			if asked > 4+reviewBurst {
				t.Errorf("bob had the API server asked %d times", asked-4)
			}
			time.Sleep(admittedFor)
			expect("what bob does costs alice nothing", "alices", "shop", "")
			if refusal := mayListPods(request(t, http.MethodGet, "/status", "alices"), "shop"); refusal == "" {
				t.Error("a reader who was not admitted is shown pods")
			}
		},
	})
}

// userOf knows alice, who is in the group monitoring, and bob.
func userOf(token string) (user authenticationv1.UserInfo, known bool) {
	switch token {
	case "alices":
		return authenticationv1.UserInfo{Username: "alice", Groups: []string{"monitoring"}}, true
	case "bobs":
		return authenticationv1.UserInfo{Username: "bob"}, true
	}
	return user, false
}

func mayRead(asked authorizationv1.SubjectAccessReviewSpec, rights []string, passed time.Duration) bool {
	return slices.ContainsFunc(append([]string{asked.User}, asked.Groups...), func(who string) bool {
		right := strings.Join([]string{who, asked.NonResourceAttributes.Verb, asked.NonResourceAttributes.Path}, " ")
		return slices.Contains(rights, right) || passed < time.Minute && slices.Contains(rights, "a minute: "+right)
	})
}

func request(t *testing.T, method, path, token string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}
