package nacos

import (
	"net/url"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestSignature is compared with that of OpenSSL.
func TestSignature(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 20, 0, 0, 0, time.FixedZone("CST", 8*60*60))
	for region, want := range map[string]url.Values{
		"":            {"signature": {"F37fNGhpfEyHq0liqoC2z3+7kZU="}},
		"cn-hangzhou": {"signature": {"CAz67nGNMSzpRq36PybEH6lKlLg="}, "signatureVersion": {"v4"}},
	} {
		want.Set("ak", "id")
		want.Set("data", "1769860800000@@SHOP@@web")
		got := url.Values{}
		(&accessKey{id: "id", secret: "a secret+key/ü=", region: region}).sign(got, "SHOP", "web", now)
		expect.Equal(t, want, got, "what is added for region %q", region)
	}
}
