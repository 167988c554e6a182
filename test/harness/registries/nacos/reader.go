package nacos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// GetReader builds the client that subscribes, unless it is there, and tells log about it.
func GetReader(ctx context.Context, log io.Writer) (cache.Built, error) {
	return registries.Build(ctx, log, registries.NacosReader)
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
type Reader = registries.Lines[[]Seen]

// Subscribe runs a client of the server that subscribes to a service, until Stop or the end of the context.
func (s *Server) Subscribe(ctx context.Context, service string) (*Reader, error) {
	return s.runReader(ctx, "-service", service)
}

// SubscribeIn is Subscribe in a namespace and group.
func (s *Server) SubscribeIn(ctx context.Context, namespace, group, service string) (*Reader, error) {
	return s.runReader(ctx, "-service", service, "-namespace", namespace, "-group", group)
}

func (s *Server) runReader(ctx context.Context, args ...string) (*Reader, error) {
	built, err := GetReader(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	args = append(args, "-port", strconv.Itoa(s.Port), "-user", Admin, "-dir", filepath.Join(s.Dir(), "reader"))
	cmd := exec.CommandContext(ctx, built.Paths[registries.NacosReader], args...)
	cmd.Env = []string{"NACOS_PASSWORD=" + s.opts.Password, "HOME=" + s.Dir()}
	cmd.Stderr = os.Stderr
	return registries.Follow[[]Seen](cmd)
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
	cmd := exec.CommandContext(ctx, built.Paths[registries.NacosReader], "-user", accessKey, "-sign", text,
		"-group", group, "-service", service)
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
