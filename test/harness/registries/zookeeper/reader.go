package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
)

// The payload classes that readers are made for: whatever is there, nothing, a map of strings, and Spring's.
const (
	PayloadObject = "java.lang.Object"
	PayloadVoid   = "java.lang.Void"
	PayloadMap    = "java.util.Map"
	PayloadSpring = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"
)

// Reader is a Java program that sees what readers with Curator and Spring Cloud see. It is safe for concurrent use.
type Reader struct {
	*java.Reader

	version string
}

// StartReader starts the program. Stop ends it.
func StartReader(ctx context.Context) (*Reader, error) {
	client, err := java.Get(ctx, os.Stderr, readerJars)
	if err != nil {
		return nil, err
	}
	server, err := java.Get(ctx, os.Stderr, serverJars)
	if err != nil {
		return nil, err
	}
	jvm, args := client.Command([]string{"-Xmx160m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"},
		[]string{filepath.Join(client.Dir, "Reader.java")}, server)
	r, err := java.StartReader(ctx, jvm, args)
	return &Reader{Reader: r, version: client.Version("curator-x-discovery")}, err
}

// Name is the library's. With Version, Err, Logs and Stop a reader is a registries.Running.
func (r *Reader) Name() string { return "Curator" }

// Version is Curator's.
func (r *Reader) Version() string { return r.version }

// Err is nil: a question to a reader that has died has an error.
func (r *Reader) Err() error { return nil }

// Logs is empty: what a reader that has died has said is in that error.
func (r *Reader) Logs() string { return "" }

// ask asks a question, and takes the reader's own error for one.
func (r *Reader) ask(question []string, answer any) error {
	line, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encoding the question: %w", err)
	}
	got := struct {
		Answer any
		Error  string
	}{Answer: answer}
	if err := r.Ask(string(line), &got); err != nil {
		return err
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	return nil
}

// View is a reader as one application has it. Its methods fail the test.
type View struct {
	t      *testing.T
	reader *Reader
	of     []string
}

// View returns what a reader sees that connects there, looks below base, and has payloads of a class.
func (r *Reader) View(t *testing.T, connect, base, class string) *View {
	t.Helper()
	return &View{t: t, reader: r, of: []string{connect, base, class}}
}

// Seen is an instance as a reader sees it. Curator's Payload, or Spring's Metadata.
type Seen struct {
	Name, ID, Address string
	Port              int
	URI, Type         string
	Enabled           bool
	Payload           any
	Metadata          map[string]string
}

// Instances is ServiceDiscovery.queryForInstances, which takes no notice of "enabled".
func (v *View) Instances(service string) []Seen { return ask[[]Seen](v, "instances", service) }

// InstancesErr is Instances with the error, "" where there is none.
func (v *View) InstancesErr(service string) string {
	_, err := try[[]Seen](v, "instances", service)
	if err != nil {
		return err.Error()
	}
	return ""
}

// Provided is ServiceProvider.getAllInstances, from its cache.
func (v *View) Provided(service string) []Seen { return ask[[]Seen](v, "provider", service) }

// Spring is what Spring Cloud's load balancer chooses from.
func (v *View) Spring(service string) []Seen { return ask[[]Seen](v, "spring", service) }

// Names is ServiceDiscovery.queryForNames.
func (v *View) Names() []string { return ask[[]string](v, "names") }

// Register registers an instance as Curator does, until the reader ends, and returns what Curator has written.
func (v *View) Register(service, id string) string { return ask[string](v, "register", service, id) }

// Again returns an entry as it is, and as Curator writes it again, with "enabled" if not compatible.
func (v *View) Again(service, id string, compatible bool) (written, again string) {
	both := ask[[]string](v, "again", service, id, fmt.Sprint(compatible))
	return both[0], both[1]
}

func ask[A any](v *View, question string, args ...string) A {
	v.t.Helper()
	answer, err := try[A](v, question, args...)
	if err != nil {
		v.t.Fatalf("asking the reader for %s %q: %v", question, args, err)
	}
	return answer
}

func try[A any](v *View, question string, args ...string) (answer A, err error) {
	v.t.Helper()
	err = v.reader.ask(slices.Concat([]string{question}, v.of, args), &answer)
	return answer, err
}
