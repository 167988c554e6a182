package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPictures draws each picture, and reads it back as XML.
func TestPictures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		in     string
		want   []string
	}{
		"life":     {"every hook is in it", "", []string{"waits: preNormal", "waits: inPlaceUpdate", "waits: preDelete"}},
		"parts":    {"the registry acknowledges before the hook is released", "", []string{"4. acknowledges", "5. releases the hook"}},
		"terminal": {"text with marks of XML stays text", "1. WITH <b> & c\n==> Update\n\n==> Result\ndemo: 3 requests\n", []string{"WITH &lt;b&gt; &amp; c", `"t last"`}},
		"terminal, in colour": {
			"it is seen where a pod leaves the rotation, and where it is still there and can't serve",
			"1. WITH\n==> Update\n1  web  ready      out of rotation\n2  web  ready      in rotation\n3  web  not ready  in rotation\n\n==> Result\n",
			[]string{`<tspan class="out">out of rotation</tspan>`, `<tspan class="in">in rotation</tspan>`, `<tspan class="fails">in rotation</tspan>`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			picture, _, _ := strings.Cut(name, ",")
			expect.NoError(t, run(t.Context(), []string{picture, dir}, strings.NewReader(tc.in)))
			for _, theme := range themes() {
				text, err := os.ReadFile(filepath.Join(dir, picture+"-"+theme.name+".svg"))
				expect.NoError(t, err)
				for _, want := range tc.want {
					if !strings.Contains(string(text), want) {
						t.Errorf("%s: the %s picture lacks %q: %s", name, theme.name, want, tc.reason)
					}
				}
				expectXML(t, string(text))
			}
		})
	}
}

// TestRecord: each way has the first pod of its first update, so that the ways compare.
func TestRecord(t *testing.T) {
	t.Parallel()
	lines, err := record(strings.NewReader(`==> Start
1. WITH ROLLCALL
==> Update it in place
time  pod    in the registry
1     web-a  ready  out of rotation
2     web-b  ready  out of rotation
3     web-a  ready  in rotation
    done: requests: 9, failed: 0
==> Update it again
4     web-a  ready  out of rotation
2. WITH A MIRROR
==> Update it in place
5     web-c  REQUEST FAILED: connection reset
==> Result
demo: 18 requests

==> Everything keeps running
6     web-a  ready  in rotation
`))
	expect.NoError(t, err)
	expect.Equal(t, []string{
		"", "1. WITH ROLLCALL", "time  pod    in the registry", "1     web-a  ready  out of rotation", "3     web-a  ready  in rotation",
		"    done: requests: 9, failed: 0",
		"", "2. WITH A MIRROR", "5     web-c  REQUEST FAILED: connection reset", "", "==> Result", "demo: 18 requests",
	}, lines, "the lines of the picture")
}

func expectXML(t *testing.T, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("reading the picture: %v", err)
		}
	}
}

// TestBadUsage says what to write.
func TestBadUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"usage: pictures":                       nil,
		"dashboard DIR PROMETHEUS PAGE":         {"dashboard", t.TempDir()},
		"answers 502 Bad Gateway":               {"dashboard", t.TempDir(), "http://127.0.0.1:1", t.TempDir()},
		"write life, parts, terminal or status": {"death", t.TempDir()},
		"pipe that into":                        {"terminal", t.TempDir()},
	} {
		expect.Error(t, strings.Join(args, " "), run(t.Context(), args, strings.NewReader("")), want)
	}
}
