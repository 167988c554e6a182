package nacos

import (
	"net/url"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestSignature has those of OpenSSL.
func TestSignature(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1796003808432).In(time.FixedZone("east", 14*60*60)) // there it is tomorrow
	for region, want := range map[string]url.Values{
		"":            {"signature": {"yLLUEGaHP4iH7eLWNvFU3FAg43o="}},
		"cn-hangzhou": {"signature": {"QRmeNJHW5b59tB/Ak/HIxhJFXt8="}, "signatureVersion": {"v4"}},
	} {
		want.Set("ak", "id")
		want.Set("data", "1796003808432@@SHOP@@web")
		got := url.Values{}
		(&accessKey{id: "id", secret: "a secret+key/ü=", region: region}).sign(got, "SHOP", "web", now)
		expect.Equal(t, want, got, "what is added for region %q", region)
	}
}
