package eureka

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
	"strings"
	"sync"

	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// Reader is a Spring application that has the server for its discovery, asks it every second, and does not know Rollcall.
type Reader struct {
	cmd     *exec.Cmd
	mu      sync.Mutex // one question at a time
	in      io.WriteCloser
	answers *bufio.Reader
	log     *bytes.Buffer // read when it has ended
}

// Instance is what the application gets: org.springframework.cloud.client.ServiceInstance.
type Instance struct {
	ID        string            `json:"id"`
	ServiceID string            `json:"serviceId"`
	URI       string            `json:"uri"`
	URIHost   string            `json:"uriHost"`
	Secure    bool              `json:"secure"`
	Metadata  map[string]string `json:"metadata"`
}

// StartReader starts the application, which ends with ctx or Stop. It takes some seconds until it answers.
func StartReader(ctx context.Context, server *Server) (*Reader, error) {
	files, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	r := &Reader{log: &bytes.Buffer{}}
	r.cmd = exec.CommandContext(ctx, files.Java,
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dloader.main=dev.rollcall.test.reader.Reader", "-cp", files.Jar,
		"org.springframework.boot.loader.launch.PropertiesLauncher",
		"--eureka.client.fetch-registry=true", "--eureka.client.registry-fetch-interval-seconds=1",
		"--eureka.client.service-url.defaultZone="+server.Endpoint+"/",
	)
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + server.Dir(), "LC_ALL=C.UTF-8"}
	process.OwnGroup(r.cmd)
	r.cmd.Stderr = r.log
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	r.answers = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	return r, nil
}

// Instances returns what the application gets for a service at this moment.
func (r *Reader) Instances(service string) ([]Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(r.in, service+"\n"); err != nil {
		return nil, r.died(err)
	}
	line, err := r.answers.ReadBytes('\n')
	if err != nil {
		return nil, r.died(err)
	}
	var instances []Instance
	if err := json.Unmarshal(line, &instances); err != nil {
		return nil, fmt.Errorf("the reader's answer %q: %w", line, err)
	}
	return instances, nil
}

// Stop ends the application and waits for its end.
func (r *Reader) Stop() {
	_ = r.in.Close() // it ends by itself then
	_ = r.cmd.Cancel()
	_ = r.cmd.Wait()
}

func (r *Reader) died(err error) error {
	const tail = 3 << 10
	err = errors.Join(err, r.cmd.Wait())
	log := r.log.String()
	return fmt.Errorf("the reader died: %w\nthe end of its log:\n%s", err, strings.TrimSpace(log[max(0, len(log)-tail):]))
}
