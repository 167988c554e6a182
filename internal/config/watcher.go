package config

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
)

// DefaultInterval is how often a [Watcher] reads the file.
const DefaultInterval = 2 * time.Second

// Watcher keeps the configuration in force in step with its file. It reads the file again and again, since a mounted
// ConfigMap changes by a swap of symbolic links that is easily missed by a watch. All fields but Interval are required.
type Watcher struct {
	Path     string
	Limits   Limits
	Interval time.Duration

	// Current is the configuration in force when Run is called.
	Current *Config
	// Apply puts a configuration in force, whole or not at all: with an error the one before stays. It is called again at
	// the next read after an error, since what it stumbled over (a file of the driver's) may come later.
	Apply func(ctx context.Context, next *Config) error
	// Applied is told of each configuration that was put in force, and of the file being right again after a refusal.
	Applied func(*Config)
	// Refused is told why the file is not in force, once until the reason changes.
	Refused func(error)
}

// Run blocks until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	interval := w.Interval
	if interval <= 0 {
		interval = DefaultInterval
	}
	p := &poll{Watcher: w, current: w.Current}
	wait.UntilWithContext(ctx, p.once, interval)
}

// poll is what one Run remembers from read to read.
type poll struct {
	*Watcher
	current *Config
	// settled is the content that needs no second look: in force, or wrong in itself.
	settled []byte
	refusal string
}

func (p *poll) once(ctx context.Context) {
	data, err := read(p.Path)
	if err != nil {
		p.settled = nil
		p.refuse(err)
		return
	}
	if p.settled != nil && bytes.Equal(data, p.settled) {
		return
	}
	next, err := p.parse(data)
	if err != nil {
		p.settled = data
		p.refuse(err)
		return
	}
	p.put(ctx, next, data)
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

// put applies next where it differs from what is in force.
func (p *poll) put(ctx context.Context, next *Config, data []byte) {
	same := reflect.DeepEqual(next, p.current)
	if !same {
		if err := p.Apply(ctx, next); err != nil {
			if ctx.Err() != nil {
				return
			}
			p.settled = nil
			p.refuse(err)
			return
		}
		p.current = next
	}
	p.settled = data
	if !same || p.refusal != "" {
		p.refusal = ""
		p.Applied(next)
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
			"cannot change while Rollcall runs, since its entries carry it: write %q, or restart", current.Cluster)))
	}
	if !slices.Equal(next.Namespaces, current.Namespaces) {
		problems = append(problems, field.Invalid(field.NewPath("namespaces"), strings.Join(next.Namespaces, ","),
			"cannot change while Rollcall runs: restart it"))
	}
	return problems.ToAggregate()
}
