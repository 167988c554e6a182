package main

import (
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestAValueThatTheReaderCannotUse(t *testing.T) {
	t.Parallel()
	type row struct{ reason, values, want string }
	expect.Each(t, map[string]row{
		"no comment":          {"the table would say nothing", "replicas: 2", "comment above replicas:"},
		"no comment on field": {"the object's says nothing of it", "# Is set.\nimage:\n  tag: a", "comment above image.tag:"},
		"another's comment":   {"it is about the value above", "# Is set.\nreplicas: 2\npods: 1", "comment above pods:"},
	}, func(t *testing.T, test row) {
		var file yaml.Node
		expect.NoError(t, yaml.Unmarshal([]byte(test.values), &file))
		_, err := pageOfValues(file.Content[0], fields{"image": map[string]any{"properties": map[string]any{"tag": nil}}})
		expect.Error(t, test.reason, err, test.want)
	})
}
