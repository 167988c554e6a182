package plugin

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const (
	// variableScreen has this test binary draw a screen instead of looking at one.
	variableScreen = "ROLLCALL_TEST_SCREEN"
	// variableGolden has the captures written anew.
	variableGolden = "ROLLCALL_TEST_GOLDEN"
	drawn          = "$ "
)

// TestScreens holds what a person sees in a real terminal, with its colours, and what stands in a pipe, to the captures in
// testdata. ROLLCALL_TEST_GOLDEN=1 writes these anew.
func TestScreens(t *testing.T) {
	t.Parallel()
	if screen := os.Getenv(variableScreen); screen != "" {
		drawScreen(t, screen)
		return
	}
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("!!!! SKIPPED: tmux is not installed, so no screen of the kubectl plugin is looked at: apt-get install tmux")
	}
	for _, screen := range []string{"status", "explain", "rollout", "history", "chinese"} {
		for _, width := range []int{80, 120} {
			t.Run(fmt.Sprint(screen, "-", width), func(t *testing.T) {
				t.Parallel()
				expectGolden(t, fmt.Sprint(screen, "-", width), capture(t, tmux, screen, width))
			})
		}
		t.Run(screen+"-pipe", func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			draw(t, screen, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
			expectGolden(t, screen+"-pipe", out.String())
		})
	}
}

// capture returns what a terminal of this width shows once the screen is drawn.
func capture(t *testing.T, tmux, screen string, width int) string {
	t.Helper()
	self, err := os.Executable()
	expect.NoError(t, err)
	run := func(arguments ...string) string {
		command := exec.Command(tmux, append([]string{"-S", filepath.Join(t.TempDir(), "..", "s"), "-f", "/dev/null"}, arguments...)...)
		command.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", variableScreen+"="+screen)
		text, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, text)
		}
		return string(text)
	}
	run("-u", "new-session", "-d", "-x", strconv.Itoa(width), "-y", "30", self, "-test.run=^TestScreens$")
	t.Cleanup(func() { run("kill-server") })
	for deadline := time.Now().Add(time.Minute); ; {
		text := strings.TrimRight(run("capture-pane", "-e", "-p"), "\n") + "\n"
		if before, found := strings.CutSuffix(text, strings.TrimSpace(drawn)+"\n"); found {
			return before
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s was not drawn within a minute; the terminal shows\n%s", screen, text)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func expectGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "screens", name+".txt")
	// One tmux resets the colours of text and ground together, another one by one; and a review can't show an escape.
	got = strings.NewReplacer("\x1b[49m", "", "\x1b[39m", "␛[0m", "\x1b", "␛").Replace(got)
	if os.Getenv(variableGolden) != "" {
		expect.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	expect.NoError(t, err)
	if got != string(want) {
		t.Errorf("%s shows\n%s\nwant\n%s", name, got, want)
	}
}

// captures are those of a table, in one file of testdata: each below a line with the name of its row.
type captures struct {
	want map[string]string

	mu  sync.Mutex
	got map[string]string
}

func openCaptures(t *testing.T, name string) *captures {
	t.Helper()
	const head = "\n== "
	path := filepath.Join("testdata", name+".txt")
	c := &captures{want: map[string]string{}, got: map[string]string{}}
	if os.Getenv(variableGolden) != "" {
		t.Cleanup(func() {
			var text strings.Builder
			for _, name := range slices.Sorted(maps.Keys(c.got)) {
				text.WriteString(head + name + "\n" + c.got[name])
			}
			expect.NoError(t, os.WriteFile(path, []byte(text.String()[1:]), 0o600))
		})
		return c
	}
	text, err := os.ReadFile(path)
	expect.NoError(t, err)
	for _, part := range strings.Split("\n"+string(text), head)[1:] {
		name, capture, _ := strings.Cut(part, "\n")
		c.want[name] = capture
	}
	return c
}

// expect compares the row that the test is of.
func (c *captures) expect(t *testing.T, got, reason string) {
	t.Helper()
	_, name, _ := strings.Cut(t.Name(), "/")
	name = strings.ReplaceAll(name, "_", " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[name] = got
	if os.Getenv(variableGolden) == "" {
		expect.Equal(t, strings.TrimSuffix(c.want[name], "\n"), strings.TrimSuffix(got, "\n"), "%s", reason)
	}
}

// drawScreen is the process in the terminal: it draws, and stays until the terminal is taken away.
func drawScreen(t *testing.T, screen string) {
	t.Helper()
	draw(t, screen, genericiooptions.IOStreams{Out: os.Stdout, ErrOut: os.Stdout})
	fmt.Print(drawn)
	<-time.After(time.Hour) // not on a channel alone: without cgo the runtime would call that a deadlock and end the process
}

func draw(t *testing.T, name string, streams genericiooptions.IOStreams) {
	t.Helper()
	o := &options{IOStreams: streams}
	stuck := scene{
		state: appspub.LifecycleStatePreparingDelete, ready: true, record: lifecycle.InService, warning: "RegistryUnavailable",
		labels: map[string]string{"example.com/delete": "true"}, says: entries.Unacknowledged,
	}
	drains := scene{
		state: appspub.LifecycleStatePreparingUpdate, ready: true, record: lifecycle.OutOfService, out: 10 * time.Second,
		labels: map[string]string{"example.com/update": "true"}, says: entries.Out,
	}
	serves := scene{state: appspub.LifecycleStateNormal, ready: true, labels: armed, record: lifecycle.InService, says: entries.In}
	var pods []Pod
	for i, s := range []scene{stuck, drains, serves} {
		p := s.view(t)
		p.Name, p.Workload = fmt.Sprintf("storefront-7c9d%d", i), "storefront"
		pods = append(pods, p)
	}
	switch name {
	case "status":
		s := status{pods: pods}
		expect.NoError(t, s.write(o.Out, o.ErrOut, terminalOf(o.Out), new(form), true))
		fmt.Fprintln(o.Out)
		s.unknown = errors.New("the manager rollcall-1 runs with statusPage: false, or is older than this plugin")
		expect.NoError(t, s.write(o.Out, o.ErrOut, terminalOf(o.Out), new(form), false))
	case "explain":
		o.explain(pods[0], nil)
	case "history":
		for _, name := range []string{"storefront-7c9d1", "cloneset/storefront"} {
			told, err := historyOf(history.Read([]byte(anUpdate(t))), "prod", name)
			expect.NoError(t, err)
			o.printHistory(told, told.Findings())
		}
	case "chinese":
		s := screen{out: o.Out, on: terminalOf(o.Out)}
		for _, message := range []string{strings.Repeat("注册中心不可用", 9), "连接被拒绝"} { // the first one takes two rows
			pods[0].Message = message
			var text bytes.Buffer
			statusTable(pods[:1], false, true, false).write(&text, terminal{})
			fmt.Fprintln(&text, message)
			s.draw(text.Bytes())
		}
	case "rollout":
		s := screen{out: o.Out, on: terminalOf(o.Out)}
		for in := 3; in >= 2; in-- {
			set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "storefront"}}
			set.Spec.Replicas, set.Status.UpdatedReplicas, set.Status.AvailableReplicas = new(int32(3)), int32(3-in), int32(in)
			set.Status.UpdateRevision = "new"
			pods[1].facts.pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "new"
			var text bytes.Buffer
			(&rollout{cloneSet: set, pods: pods[3-in:], in: in}).write(&text, s.on, in)
			s.draw(text.Bytes())
		}
	}
}
