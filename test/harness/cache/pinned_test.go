package cache

import (
	"path/filepath"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestPinned(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, folder := range []string{"kubernetes-1.9", "kubernetes-1.37", "kubernetes-1.34", "kubernetes-tools", "kwok-0.7"} {
		writeFile(t, filepath.Join(root, folder, "go.mod"), "module example.com/m\n")
	}
	writeFile(t, filepath.Join(root, "kubernetes-1.38", "README.md"), "")
	for _, folder := range []string{"eureka-2025.0", "eureka-2025.1"} {
		writeFile(t, filepath.Join(root, folder, "pom.xml"), "<project/>\n")
	}
	expect.Each(t, map[string]struct {
		name, env, folder, wrong string
		older                    int // those that servers can be upgraded from
	}{
		"the newest is the default, by number": {name: "kubernetes", folder: "kubernetes-1.37", older: 2},
		"the environment chooses":              {name: "kubernetes", env: "1.9", folder: "kubernetes-1.9"},
		"what is not there lists what is": {
			name: "kubernetes", env: "1.38", wrong: `KUBERNETES is "1.38", but ` + root + " has 1.9, 1.34, 1.37: set one of these",
		},
		"a path is not a version":     {name: "kubernetes", env: "1.9/../kubernetes-1.34", wrong: "has 1.9, 1.34, 1.37: set one of these"},
		"a server that nothing pins":  {name: "etcd", wrong: "has no folder etcd-VERSION with a go.mod"},
		"jars are pinned as well":     {name: "eureka", folder: "eureka-2025.1", older: 1},
		"the only version is the one": {name: "kwok", folder: "kwok-0.7"},
	}, func(t *testing.T, row struct {
		name, env, folder, wrong string
		older                    int
	},
	) {
		t.Helper()
		dirs, err := pinned(root, row.name, row.env)
		if row.wrong != "" {
			expect.Error(t, "the error lists what can be chosen", err, row.wrong)
			return
		}
		expect.NoError(t, err)
		expect.Equal(t, row.older, len(dirs)-1, "the versions before")
		expect.Equal(t, filepath.Join(root, row.folder), dirs[row.older], "the folder")
	})
}
