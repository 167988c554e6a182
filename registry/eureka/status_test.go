package eureka

import (
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestReplicasIn has a status in each form that codecs of Eureka give it.
func TestReplicasIn(t *testing.T) {
	t.Parallel()
	const want = "http://eureka-1:8761/eureka/, http://eureka-2:8761/eureka/"
	for name, body := range map[string]string{
		"XML": "<status><generalStats><uptime>1</uptime></generalStats>\n<applicationStats>\n<registered-replicas>" + want +
			"</registered-replicas></applicationStats></status>",
		"XML of a map": "<status><applicationStats>\n<entry>\n<string>available-replicas</string><string>x</string></entry>" +
			"<entry>\n<string>registered-replicas</string>\n<string>" + want + "</string></entry></applicationStats></status>",
		"JSON": `{"generalStats":{"uptime":"1"},"applicationStats":{"registered-replicas":"` + want + `"},"healthy":true}`,
	} {
		got, err := replicasIn([]byte(body))
		expect.NoError(t, err)
		expect.Equal(t, want, got, "%s", name)
	}
	for name, body := range map[string]string{"a page": "<html><p>Log in", "nothing": "", "other JSON": `{"status":"UP"}`} {
		if got, err := replicasIn([]byte(body)); err == nil {
			t.Errorf("%s: got %q, want an error", name, got)
		}
	}
}
