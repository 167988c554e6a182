package eureka

import (
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestSpellingsOutlastTheEntries: the last pod of a service is taken out before its application's entry goes.
func TestSpellingsOutlastTheEntries(t *testing.T) {
	t.Parallel()
	own := &spellings{known: map[string][]string{}}
	own.note("web")
	own.note("Web")
	_, err := entriesOf([]byte(`{"applications":{"application":[]}}`), "test", own)
	expect.NoError(t, err)
	for vip, want := range map[string][]string{
		"web": {"web"}, "Web": {"Web"}, "WEB": {"web", "Web"}, "WEB,api": {"web", "Web", "api"},
	} {
		expect.Equal(t, want, own.of(vip), "%s", vip)
	}
}
