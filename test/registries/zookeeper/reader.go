package zookeeper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/test/cache"
)

// The payload classes that readers are made for: whatever is there, nothing, a map of strings, and Spring's.
const (
	PayloadObject = "java.lang.Object"
	PayloadVoid   = "java.lang.Void"
	PayloadMap    = "java.util.Map"
	PayloadSpring = "org.springframework.cloud.zookeeper.discovery.ZookeeperInstance"
)

// readerJars are Curator, and as much of Spring Cloud Zookeeper as its load balancer's filter needs.
func readerJars() []jar {
	const (
		curator, curatorVersion = "org.apache.curator", "5.9.0"
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

// Reader is a Java process that sees what readers with Curator and Spring Cloud see. Its methods fail the test.
type Reader struct {
	t *testing.T

	mu     sync.Mutex
	in     io.Writer
	out    *bufio.Reader
	errors *bytes.Buffer
}

// StartReader starts a reader for services below base, whose payload is of a class. It ends with the test.
func StartReader(t *testing.T, connect, base, payload string) *Reader {
	t.Helper()
	files, err := Get(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := cache.Dir(t.Context(), "test/registries/zookeeper/reader")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), files.Java, "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", files.Reader, filepath.Join(dir, "Reader.java"),
		connect, base, payload)
	r := &Reader{t: t, errors: &bytes.Buffer{}}
	cmd.Stderr = r.errors
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.in, r.out = in, bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return r
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
func (r *Reader) Instances(service string) []Seen { return ask[[]Seen](r, "instances", service) }

// InstancesErr is Instances with the error, "" where there is none.
func (r *Reader) InstancesErr(service string) string {
	_, err := try[[]Seen](r, "instances", service)
	if err != nil {
		return err.Error()
	}
	return ""
}

// Provided is ServiceProvider.getAllInstances, from its cache.
func (r *Reader) Provided(service string) []Seen { return ask[[]Seen](r, "provider", service) }

// Spring is what Spring Cloud's load balancer chooses from.
func (r *Reader) Spring(service string) []Seen { return ask[[]Seen](r, "spring", service) }

// Names is ServiceDiscovery.queryForNames.
func (r *Reader) Names() []string { return ask[[]string](r, "names") }

// Register registers an instance as Curator does, until the reader ends, and returns what Curator has written.
func (r *Reader) Register(service, id string) string { return ask[string](r, "register", service, id) }

// Again returns an entry as it is, and as Curator writes it again, with "enabled" if not compatible.
func (r *Reader) Again(service, id string, compatible bool) (written, again string) {
	both := ask[[]string](r, "again", service, id, fmt.Sprint(compatible))
	return both[0], both[1]
}

func ask[A any](r *Reader, question ...string) A {
	r.t.Helper()
	answer, err := try[A](r, question...)
	if err != nil {
		r.t.Fatalf("asking the reader for %q: %v", question, err)
	}
	return answer
}

func try[A any](r *Reader, question ...string) (A, error) {
	r.t.Helper()
	var got struct {
		Answer A
		Error  string
	}
	line, err := json.Marshal(question)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.in.Write(append(line, '\n'))
	if err == nil {
		line, err = r.out.ReadBytes('\n')
	}
	if err == nil {
		err = json.Unmarshal(line, &got)
	}
	if err != nil {
		r.t.Fatalf("asking the reader for %q: %v\n%s\n%s", question, err, line, r.errors)
	}
	if got.Error != "" {
		return got.Answer, errors.New(got.Error)
	}
	return got.Answer, nil
}
