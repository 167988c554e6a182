package nacos

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const readerName = "nacos-reader"

// readerModule is Nacos' own Go client with a main of its own around it; see reader/main.go.
func readerModule(ctx context.Context) (cache.Module, error) {
	dir, err := cache.Dir(ctx, "test/harness/registries/nacos/reader")
	if err != nil {
		return cache.Module{}, err
	}
	source, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		return cache.Module{}, fmt.Errorf("reading the source of the reader: %w", err)
	}
	sum := sha256.Sum256(source)
	return cache.Module{
		Name: readerName, Dir: dir, Requires: "github.com/nacos-group/nacos-sdk-go/v2",
		// Another source is another binary in the cache.
		LDFlags:  func(string) string { return "-X main.source=" + hex.EncodeToString(sum[:8]) },
		Binaries: []cache.Binary{{Name: readerName, Package: "."}},
	}, nil
}

// GetReader builds the client that subscribes, unless it is there, and tells log about it.
func GetReader(ctx context.Context, log io.Writer) (cache.Built, error) {
	m, err := readerModule(ctx)
	return registries.Build(ctx, log, m, err)
}

// Seen is an instance as a client gets it.
type Seen struct {
	IP       string            `json:"ip"`
	Port     int               `json:"port"`
	Weight   float64           `json:"weight"`
	Healthy  bool              `json:"healthy"`
	Enabled  bool              `json:"enabled"`
	Metadata map[string]string `json:"metadata"`
}

// Reader is a client that has subscribed to a service.
type Reader struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}
	err   error // of the process, once it has ended

	mu     sync.Mutex
	latest []Seen
	told   bool
	change chan struct{} // closed at each list, and made anew
}

// Subscribe runs a client of the server that subscribes to a service, until Stop or the end of the context.
func (s *Server) Subscribe(ctx context.Context, service string) (*Reader, error) {
	return s.runReader(ctx, "-service", service)
}

func (s *Server) runReader(ctx context.Context, args ...string) (*Reader, error) {
	built, err := GetReader(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	args = append(args, "-port", strconv.Itoa(s.Port), "-user", Admin, "-dir", filepath.Join(s.Dir(), "reader"))
	cmd := exec.CommandContext(ctx, built.Paths[readerName], args...)
	cmd.Env = []string{"NACOS_PASSWORD=" + s.opts.Password, "HOME=" + s.Dir()}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // closed with this process
	if err != nil {
		return nil, fmt.Errorf("starting the reader: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the reader: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the reader: %w", err)
	}
	r := &Reader{cmd: cmd, in: in, ended: make(chan struct{}), change: make(chan struct{})}
	go r.follow(out)
	return r, nil
}

// Signed is what the client adds to a request about a service, and its signature of a text.
type Signed struct {
	Added     map[string]string `json:"added"`
	Signature string            `json:"signature"`
}

// Sign has the client sign with an access key and its secret key.
func Sign(ctx context.Context, accessKey, secretKey, text, group, service string) (s Signed, err error) {
	built, err := GetReader(ctx, os.Stderr)
	if err != nil {
		return Signed{}, err
	}
	cmd := exec.CommandContext(ctx, built.Paths[readerName], "-user", accessKey, "-sign", text, "-group", group, "-service", service)
	cmd.Env, cmd.Stderr = []string{"NACOS_PASSWORD=" + secretKey}, os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		return Signed{}, fmt.Errorf("signing: %w", err)
	}
	return s, nil
}

func (r *Reader) follow(out io.Reader) {
	defer close(r.ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var list []Seen
		if json.Unmarshal(lines.Bytes(), &list) != nil {
			continue // something that the client itself prints
		}
		r.mu.Lock()
		r.latest, r.told = list, true
		close(r.change)
		r.change = make(chan struct{})
		r.mu.Unlock()
	}
	r.err = r.cmd.Wait()
}

// Await returns once the list that the client has is right.
func (r *Reader) Await(ctx context.Context, right func([]Seen) bool) error {
	for {
		r.mu.Lock()
		latest, told, change := r.latest, r.told, r.change
		r.mu.Unlock()
		if told && right(latest) {
			return nil
		}
		select {
		case <-change:
		case <-r.ended:
			return fmt.Errorf("the client has ended; the last that it had was %+v", latest)
		case <-ctx.Done():
			return fmt.Errorf("%w: the client has %+v", ctx.Err(), latest)
		}
	}
}

// Latest returns the list that the client has.
func (r *Reader) Latest() ([]Seen, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
		return nil, errors.Join(errors.New("the client has ended"), r.err)
	default:
		return r.latest, nil
	}
}

// Stop ends the client.
func (r *Reader) Stop() {
	_ = r.cmd.Process.Kill()
	<-r.ended
}
