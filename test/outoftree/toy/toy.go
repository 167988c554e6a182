// Package toy is a registry driver for a registry that is nothing but a directory: each entry is a file, and who wants to
// know an instance reads the files. It is small, and holds to the whole contract.
package toy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	lockFile = "lock"
	suffix   = ".json"
	// lockPoll is how often a call looks whether the lock is free.
	lockPoll = 2 * time.Millisecond
)

// Options are the driver's own part of the configuration.
type Options struct {
	// Prefix begins the name of each file. Default: none.
	Prefix string `json:"prefix"`
}

// Registry implements [registry.Registry], [registry.Lister] and [registry.Getter] over a directory.
type Registry struct {
	dir    string
	prefix string
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
)

// New makes a driver for the directory at cfg.Endpoint.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	if !filepath.IsAbs(cfg.Endpoint) {
		return nil, registry.FieldError("endpoint", errors.New("use the absolute path of a directory"))
	}
	if cfg.TLS.Given() {
		return nil, registry.FieldError("tls", errors.New("a directory knows no TLS: remove it"))
	}
	if _, err := driverkit.ReadCredentials(cfg.Auth); err != nil { // it takes none
		return nil, err
	}
	var options Options
	if err := driverkit.DecodeOptions(cfg, &options); err != nil {
		return nil, err
	}
	if strings.ContainsRune(options.Prefix, filepath.Separator) {
		return nil, registry.FieldError("options.prefix", errors.New("is part of a file's name: use it without a slash"))
	}
	return &Registry{dir: cfg.Endpoint, prefix: options.Prefix}, nil
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.locked(ctx, func() error { return r.write(registry.Entry{Instance: in, State: registry.InService}) })
}

// FailOver implements [registry.Registry].
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.ifOurs(ctx, in, func(e registry.Entry) error {
		e.State = registry.OutOfService
		return r.write(e)
	})
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.ifOurs(ctx, in, func(e registry.Entry) error { return os.Remove(r.path(e.Instance)) })
}

// List implements [registry.Lister].
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	var entries []registry.Entry
	err := r.locked(ctx, func() error {
		files, err := os.ReadDir(r.dir)
		if err != nil {
			return err
		}
		for _, file := range files {
			if !strings.HasPrefix(file.Name(), r.prefix) || !strings.HasSuffix(file.Name(), suffix) {
				continue
			}
			e, err := read(filepath.Join(r.dir, file.Name()))
			if err != nil {
				return err // all or nothing
			}
			if e.Cluster == cluster {
				entries = append(entries, e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// Get implements [registry.Getter].
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	state := registry.Absent
	err := r.ifOurs(ctx, in, func(e registry.Entry) error {
		if e.Cluster == in.Cluster {
			state = e.State
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return state, nil
}

// ifOurs does something with the pod's entry. None, or another pod's, is none of our business.
func (r *Registry) ifOurs(ctx context.Context, in registry.Instance, do func(registry.Entry) error) error {
	return r.locked(ctx, func() error {
		e, err := read(r.path(in))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !in.Owns(e.UID, e.Registry):
			return nil
		}
		return do(e)
	})
}

// locked does something while no other process, and no other call of this one, works in the directory.
func (r *Registry) locked(ctx context.Context, do func() error) error {
	lock, err := os.OpenFile(filepath.Join(r.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return classified(err)
	}
	defer lock.Close() // which frees it
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for the lock of %s: %w", r.dir, ctx.Err())
		case err == nil:
			return classified(do())
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("locking %s: %w", r.dir, err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// classified marks what stays wrong until a person corrects it.
func classified(err error) error {
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("is not a directory: %w", err)))
	case errors.Is(err, fs.ErrPermission):
		return registry.Terminal(err)
	}
	return err
}

// path is the file of an entry, whatever characters its service has.
func (r *Registry) path(in registry.Instance) string {
	sum := sha256.Sum256([]byte(in.Service + "\x00" + in.Endpoint()))
	return filepath.Join(r.dir, fmt.Sprintf("%s%x%s", r.prefix, sum, suffix))
}

func read(path string) (registry.Entry, error) {
	var e registry.Entry
	data, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("reading %s: %w", path, err)
	}
	return e, nil
}

// write puts the file in place whole, for those who read without the lock.
func (r *Registry) write(e registry.Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return registry.Terminal(err)
	}
	path := r.path(e.Instance)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
