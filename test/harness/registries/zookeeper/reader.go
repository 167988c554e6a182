package zookeeper

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
)

// The payload classes that readers are made for: whatever is there, nothing, a map of strings, and Spring's.
const (
	PayloadObject = "java.lang.Object"
	PayloadVoid   = "java.lang.Void"
	PayloadMap    = "java.util.Map"
	PayloadSpring = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"
)

const curatorVersion = "5.9.0"

// readerJars are Curator, and as much of Spring Cloud Zookeeper as its load balancer's filter needs.
func readerJars() []jar {
	const (
		curator                 = "org.apache.curator"
		jackson, jacksonVersion = "com.fasterxml.jackson.core", "2.18.1"
		cloud, cloudVersion     = "org.springframework.cloud", "4.3.0"
		spring, springVersion   = "org.springframework", "6.2.8"
	)
	return []jar{
		{curator, "curator-client", curatorVersion, "9b1d65fa1940f77199ed097a8e586534efd1e9311227939a46a0e467a5f7991a"},
		{curator, "curator-framework", curatorVersion, "f8588d71d4b2d0b15ef5f911ceaac387563070cc328b91025047131d0c05733e"},
		{curator, "curator-recipes", curatorVersion, "2b384c256a8a30dfdff11763ec0fd56b6346e001afcb0c5ea972d5d0db1698bc"},
		{curator, "curator-x-discovery", curatorVersion, "e5d4c2920c2dbd4eed32e3a3095f3dd2876907bf179e96a61ee4479d1e2fc13d"},
		{jackson, "jackson-annotations", jacksonVersion, "b7f9df5dac9a85f47fdb2769455ee8ba9cf2fe9b7c4cf636e0aec83479d7882f"},
		{jackson, "jackson-core", jacksonVersion, "ebe19596ad19f7a0514c8bb8f7b0acf85239a4eff5ae03229e9760d268d29c22"},
		{jackson, "jackson-databind", jacksonVersion, "711bc3bf86d31d02968b9279efb07a6ad60adfc0baa0e9fe66d71a0ac2556234"},
		{cloud, "spring-cloud-zookeeper-discovery", cloudVersion, "4aefba610c74d9525d6a3a1cbb9984d0d48153736782ffbe8e15a7a73b7311a1"},
		{cloud, "spring-cloud-commons", cloudVersion, "7c43a62c549cd505c716b96b1a8f5a12f65cdd3c9a25dac6c0bf98a6e2438853"},
		{cloud, "spring-cloud-loadbalancer", cloudVersion, "4a20f47c6766ec447a82a2cc0b29f912990cc95c7021ed9d3bcbfb47be1834ad"},
		{spring, "spring-core", springVersion, "27f640340164d74a0e90ee176b75d5a18a93f82fa96f444a757acf0bf3ae7257"},
		{spring, "spring-jcl", springVersion, "bd8b6add12db54602bc5926b8449a48fd922a36778323218aea88cfaea591e72"},
		{"io.projectreactor", "reactor-core", "3.7.6", "6d5caa24a2dbfc8e30b94a625b198b8e30751f5c1d1edd333d42d1a8b212ba99"},
		{"org.reactivestreams", "reactive-streams", "1.0.4", "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28"},
	}
}

// Reader is a Java program that sees what readers with Curator and Spring Cloud see. It is safe for concurrent use.
type Reader struct {
	cmd *exec.Cmd

	mu  sync.Mutex // one question at a time
	in  io.WriteCloser
	out *bufio.Reader
	log *bytes.Buffer // read when it has ended
}

// StartReader starts the program, which is compiled for that: it takes some seconds until it answers. Stop ends it.
func StartReader(ctx context.Context) (*Reader, error) {
	files, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := cache.Dir(ctx, "test/harness/registries/zookeeper/reader")
	if err != nil {
		return nil, err
	}
	r := &Reader{log: &bytes.Buffer{}}
	r.cmd = exec.CommandContext(context.WithoutCancel(ctx), files.Java,
		"-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", files.Reader, filepath.Join(dir, "Reader.java"))
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "LC_ALL=C.UTF-8"}
	r.cmd.Stderr = r.log
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	r.out = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	return r, nil
}

// Name is the library's. With Version, Err, Logs and Stop a reader is a registries.Running.
func (r *Reader) Name() string { return "Curator" }

// Version is Curator's.
func (r *Reader) Version() string { return curatorVersion }

// Err is nil: a question to a reader that has died has an error.
func (r *Reader) Err() error { return nil }

// Logs is empty: what a reader that has died has said is in that error.
func (r *Reader) Logs() string { return "" }

// Stop ends the program: it does so by itself when no process can ask any more, also where this process was killed.
func (r *Reader) Stop() {
	_ = r.in.Close()
	_ = r.cmd.Wait()
}

// ask asks a question, and takes the reader's own error for one.
func (r *Reader) ask(question []string, answer any) error {
	line, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encoding the question: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err = r.in.Write(append(line, '\n')); err == nil {
		line, err = r.out.ReadBytes('\n')
	}
	if err != nil {
		err = errors.Join(err, r.cmd.Wait())
		return fmt.Errorf("the reader died: %w\n%s", err, r.log)
	}
	got := struct {
		Answer any
		Error  string
	}{Answer: answer}
	if err := json.Unmarshal(line, &got); err != nil {
		return fmt.Errorf("the reader's answer %q: %w", line, err)
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
