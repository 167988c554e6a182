package httpregistry_test

import (
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

func TestNew(t *testing.T) {
	t.Parallel()
	d := drivertest.Driver{
		New: httpregistry.New, Good: "https://registry.example.com/base",
		Auth: []driverkit.AuthKind{driverkit.Token, driverkit.Password},
	}
	token, password := drivertest.File(t, goodToken), drivertest.File(t, goodPassword)
	withAuth := func(auth registry.Auth) registry.Config { return registry.Config{Endpoint: d.Good, Auth: auth} }
	d.Run(t, map[string]drivertest.Case{
		"token and password": drivertest.Wrong(
			"a request has one Authorization", withAuth(registry.Auth{TokenFile: token, Username: "me", PasswordFile: password}),
			"auth.username", "remove one"),
		"a colon in the user": drivertest.Wrong(
			"the password would begin there", withAuth(registry.Auth{Username: "me:you", PasswordFile: password}), "auth.username", "colon"),
	})
}
