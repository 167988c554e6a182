package consul_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

const subject = "system:serviceaccount:rollcall-system:rollcall"

// TestLoginByAServiceAccount has an auth method that checks the token of Rollcall's ServiceAccount by the cluster's key, and gives the rights
// that the driver's page tells people to give.
func TestLoginByAServiceAccount(t *testing.T) {
	t.Parallel()
	server := guarded.Use(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	method := methodOf(t, server, key)
	cfg := configOf(t, server)
	cfg.Cluster, cfg.Options = t.Name(), fmt.Appendf(nil, `{"authMethod":%q,"nodePrefix":%q}`, method, prefixOf(t))
	cfg.Auth.TokenFile = drivertest.File(t, jwt(t, key, subject))
	d := open(t, cfg)
	type token struct{ AccessorID string }
	tokens := func() (all []token) {
		expect.NoError(t, server.Do(t.Context(), http.MethodGet, "/v1/acl/tokens?authmethod="+method, nil, &all))
		return all
	}
	expect.Equal(t, 0, len(tokens()), "tokens before the first call: a replica that does not lead needs none")
	var calls errgroup.Group
	for n := range 20 {
		calls.Go(func() error { return d.Register(t.Context(), pod(t, n+1)) })
	}
	expect.NoError(t, calls.Wait())
	expect.Equal(t, 1, len(tokens()), "tokens of the auth method, for all calls")

	expect.NoError(t, server.Do(t.Context(), http.MethodDelete, "/v1/acl/token/"+tokens()[0].AccessorID, nil, nil))
	expect.Soon(t, "Rollcall to log in again", func() error { return d.Register(t.Context(), pod(t, 1)) })
	for n := range 20 {
		must(t, d.Deregister, pod(t, n+1))
	}
	expect.NoError(t, d.Close())
	expect.Equal(t, 0, len(tokens()), "tokens after Close")

	for reason, wrong := range map[string]struct{ method, token, field string }{
		"another ServiceAccount": {method, jwt(t, key, "system:serviceaccount:shop:web"), "auth.tokenFile"},
		"no such method":         {method + "-2", jwt(t, key, subject), "options.authMethod"},
	} {
		cfg.Options = fmt.Appendf(nil, `{"authMethod":%q,"nodePrefix":%q}`, wrong.method, prefixOf(t))
		cfg.Auth.TokenFile = drivertest.File(t, wrong.token)
		drivertest.Refused(t, reason, open(t, cfg).Register(t.Context(), pod(t, 1)), wrong.field, "")
	}
}

// methodOf makes an auth method for tokens that the key has signed, and returns its name.
func methodOf(t *testing.T, server *consul.Server, key *ecdsa.PrivateKey) (name string) {
	t.Helper()
	name = prefixOf(t) + "method"
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	expect.NoError(t, err)
	do := func(path string, body object) {
		expect.NoError(t, server.Do(t.Context(), http.MethodPut, path, body, nil))
	}
	do("/v1/acl/auth-method", object{
		"Name": name, "Type": "jwt", "MaxTokenTTL": "1h", "Config": object{
			"JWTValidationPubKeys": []string{string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))},
			"BoundAudiences":       []string{"consul"}, "JWTSupportedAlgs": []string{"ES256"}, "ClaimMappings": object{"sub": "subject"},
		},
	})
	do("/v1/acl/policy", object{"Name": name, "Rules": documentedRules(t) + fmt.Sprintf("\nnode_prefix %q { policy = \"write\" }", prefixOf(t))})
	do("/v1/acl/role", object{"Name": name, "Policies": []object{{"Name": name}}})
	do("/v1/acl/binding-rule", object{
		"AuthMethod": name, "BindType": "role", "BindName": name, "Selector": fmt.Sprintf("value.subject == %q", subject),
	})
	return name
}

// jwt is a token as Kubernetes projects it.
func jwt(t *testing.T, key *ecdsa.PrivateKey, subject string) string {
	t.Helper()
	part := func(of object) string {
		raw, err := json.Marshal(of)
		expect.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	now := time.Now()
	signed := part(object{"alg": "ES256", "typ": "JWT"}) + "." + part(object{
		"sub": subject, "aud": []string{"consul"}, "iat": now.Add(-time.Minute).Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	expect.NoError(t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}
