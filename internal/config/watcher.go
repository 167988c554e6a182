package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
)

// DefaultInterval is how often a [Watcher] reads the files.
const DefaultInterval = 2 * time.Second

// Watcher keeps the configuration in force in step with its file, and with the files that its registries name. It reads
// them again and again, since a mounted ConfigMap or Secret changes by a swap of symbolic links that is easily missed by a
// watch. All fields but Interval are required.
type Watcher struct {
	Path     string
	Limits   Limits
	Interval time.Duration

	// Current is the configuration in force when Run is called. It comes from [Load], and its registries were opened
	// after that.
	Current *Config
	// Apply puts a configuration in force, whole or not at all: with an error the one before stays. The registries in
	// rotated, sorted, have to be opened anew: their sections did not change, but what stands in their files did. It is
	// called again at the next read after an error, since what it stumbled over (a file that is missing, or half
	// written) may be right then. While next can't be applied, what rotated of the one in force still is, each
	// registry by itself.
	Apply func(ctx context.Context, next *Config, rotated []string) error
	// Applied is called after a configuration was put in force, and when a refusal has ended. It is not called for a
	// rotation alone.
	Applied func(*Config)
	// Refused is called with the reason why the files are not in force, once until the reason changes.
	Refused func(error)
}

// Run blocks until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	interval := w.Interval
	if interval <= 0 {
		interval = DefaultInterval
	}
	wait.UntilWithContext(ctx, w.start().once, interval)
}

func (w *Watcher) start() *poll {
	return &poll{Watcher: w, current: w.Current, opened: maps.Clone(w.Current.loaded)}
}

// poll is what one Run remembers from read to read.
type poll struct {
	*Watcher
	current *Config
	// opened is of the files with which the registries in force were opened.
	opened map[string]fingerprint
	// seen is the content that was last parsed, and came what came of it.
	seen []byte
	came struct {
		next *Config
		err  error
	}
	refusal string
}

// once reads everything. What is wrong with the configuration does not keep the one in force from going on with files
// that were rotated.
func (p *poll) once(ctx context.Context) {
	before := p.current
	next, refused := p.read()
	if refused != nil {
		next = p.current
	}
	refused = errors.Join(refused, p.follow(ctx, next))
	switch {
	case refused != nil && ctx.Err() == nil:
		p.refuse(refused)
	case refused == nil && (p.current != before || p.refusal != ""):
		p.refusal = ""
		p.Applied(p.current)
	}
}

// read returns the configuration in force where the file says the same.
func (p *poll) read() (*Config, error) {
	data, err := read(p.Path)
	if err != nil {
		return nil, err
	}
	if p.seen == nil || !bytes.Equal(data, p.seen) {
		p.seen = data
		p.came.next, p.came.err = p.parse(data)
	}
	if p.came.err == nil && p.came.next.equal(p.current) {
		return p.current, nil
	}
	return p.came.next, p.came.err
}

func (p *poll) parse(data []byte) (*Config, error) {
	next, err := Parse(data, p.Limits)
	if err != nil {
		return nil, err
	}
	if err := unchangeable(p.current, next); err != nil {
		return nil, err
	}
	return next, nil
}

// follow applies next where it is not in force, or its registries' files were rotated. They are read before the
// registries are opened: a change in between is seen at the next read.
func (p *poll) follow(ctx context.Context, next *Config) error {
	now := next.fingerprints()
	rotated := next.rotated(p.current, now, p.opened)
	if next == p.current && len(rotated) == 0 {
		return nil
	}
	err := p.Apply(ctx, next, rotated)
	if err == nil {
		p.current, p.opened = next, now
		return nil
	}
	if ctx.Err() == nil && (next != p.current || len(rotated) > 1) {
		p.rotateEach(ctx)
	}
	return err
}

// rotateEach applies rotated files to the configuration in force, registry by registry, after all at once was refused: a
// registry with a wrong file must not keep the others from their new credentials. The caller reports the refusal.
func (p *poll) rotateEach(ctx context.Context) {
	now := p.current.fingerprints()
	for _, name := range p.current.rotated(p.current, now, p.opened) {
		if p.Apply(ctx, p.current, []string{name}) == nil {
			p.opened[name] = now[name]
		}
	}
}

func (p *poll) refuse(err error) {
	if err.Error() == p.refusal {
		return
	}
	p.refusal = err.Error()
	p.Refused(err)
}

// unchangeable refuses a change of what holds for the life of the process.
func unchangeable(current, next *Config) error {
	var problems field.ErrorList
	if next.Cluster != current.Cluster {
		problems = append(problems, field.Invalid(field.NewPath("cluster"), next.Cluster, fmt.Sprintf(
			"can't change while the manager runs, because its entries carry it: write %q, or restart the manager", current.Cluster)))
	}
	if !slices.Equal(next.Namespaces, current.Namespaces) {
		problems = append(problems, field.Invalid(field.NewPath("namespaces"), strings.Join(next.Namespaces, ","),
			"can't change while the manager runs: restart it"))
	}
	return problems.ToAggregate()
}
