package java

import (
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestParse(t *testing.T) {
	t.Parallel()
	files, err := parse("0a1b  org/example/core/1.2/core-1.2.jar\n")
	want := cache.File{Name: "core-1.2.jar", URL: central + "org/example/core/1.2/core-1.2.jar", SHA256: "0a1b"}
	expect.NoError(t, err)
	if len(files) != 1 || files[0] != want {
		t.Errorf("got %+v, want %+v", files, want)
	}
	if _, err := parse("0a1b org/example/core-1.2.jar\n"); err == nil || !strings.Contains(err.Error(), "core-1.2.jar") {
		t.Errorf("a line without two columns: got %v", err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	j := &Jars{paths: []string{"/cache/eureka-core-jersey3-2.0.5.jar", "/cache/eureka-core-2.0.4.jar"}}
	if got := j.Version("eureka-core"); got != "2.0.4" {
		t.Errorf("got %q: another artifact's name begins with the same words", got)
	}
}
