package cache

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	// packagesPerMinute are compiled on two cores, and each takes diskPerPackage in Go's caches and where it is linked.
	packagesPerMinute, diskPerPackage = 500, 3 << 19
	// smallBuild is how many packages a binary has that says nothing of it, and fewPackages are not worth a word.
	smallBuild, fewPackages = 600, 200
)

// Plan is what the cache has of some modules and lacks, and what it takes to build that.
type Plan struct {
	builds   []*build
	paths    []string // of the binaries to build
	names    []string // of all that is to be built
	packages int
	// Downloads are the names of the binaries that are published, and that the cache lacks.
	Downloads []string
}

// NewPlan looks into the cache, and changes nothing.
func NewPlan(ctx context.Context, modules ...Module) (*Plan, error) {
	p := &Plan{}
	for _, m := range modules {
		b, err := newBuild(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", m.Name, err)
		}
		p.builds = append(p.builds, b)
		for _, bin := range b.missing {
			if _, _, pinned := b.published(bin); pinned {
				p.Downloads = append(p.Downloads, bin.Name+" "+b.Version)
			} else if path := b.Paths[bin.Name]; !slices.Contains(p.paths, path) {
				p.paths = append(p.paths, path)
				p.add(bin.Name+" "+b.Version, cmp.Or(bin.Packages, smallBuild))
			}
		}
	}
	return p, nil
}

// AddProgram counts a program of this checkout too, or its tests, if much of it is not compiled. args are those of go, and all
// is about how many packages there are. The caller builds it.
func (p *Plan) AddProgram(ctx context.Context, name string, all int, args ...string) error {
	dir, err := Dir(ctx, ".")
	if err != nil {
		return err
	}
	env := []string{"GOPROXY=off"} // a download is no glance
	if slices.Contains(args, "-race") {
		env = append(env, "CGO_ENABLED=1")
	}
	packages, err := stale(ctx, dir, args, env...)
	if err != nil {
		packages = all // modules are missing
	}
	if packages > fewPackages {
		p.add(name, packages)
	}
	return nil
}

func (p *Plan) add(name string, packages int) {
	p.names = append(p.names, name)
	p.packages += packages
}

// String is what has to be built and what that takes; empty where nothing has to be.
func (p *Plan) String() string {
	if len(p.names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: about %d min on two cores, with %.1f GB of free disk and a network",
		strings.Join(p.names, ", "), 1+p.packages/packagesPerMinute, gigabytes(p.disk()))
}

func (p *Plan) disk() uint64 { return uint64(p.packages) * diskPerPackage }

func gigabytes(bytes uint64) float64 { return float64(bytes) / (1 << 30) }

// Build builds what the cache lacks, and returns what it has then of each module, in their order.
func (p *Plan) Build(ctx context.Context, log *Progress) (all []Built, err error) {
	if len(p.paths) > 0 {
		if err := p.checkDisk(ctx); err != nil {
			return nil, err
		}
	}
	number := &counter{total: len(p.paths), packages: p.packages, begun: time.Now()}
	for _, b := range p.builds {
		if err := b.make(ctx, log, number); err != nil {
			return nil, fmt.Errorf("building %s: %w", b.Name, err)
		}
		all = append(all, b.Built)
	}
	return all, nil
}

// checkDisk refuses to begin what would end with a full disk.
func (p *Plan) checkDisk(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return fmt.Errorf("asking go for its caches: %w", withStderr(err))
	}
	for _, dir := range append(strings.Split(strings.TrimSpace(string(out)), "\n"), p.builds[0].target) {
		free, err := freeDisk(dir)
		if err != nil {
			return fmt.Errorf("looking for free disk space at %s: %w", dir, err)
		}
		if free < p.disk() {
			return fmt.Errorf("the build needs %.1f GB of free disk, and %s has %.1f GB: "+
				"free some, or point XDG_CACHE_HOME, GOCACHE and GOMODCACHE to a larger disk", gigabytes(p.disk()), dir, gigabytes(free))
		}
	}
	return nil
}

// counter numbers the servers that are built, and knows how much is left.
type counter struct {
	last, total    int
	done, packages int // of all that the plan has
	begun          time.Time
}

// add counts one that could not be downloaded.
func (c *counter) add(bin Binary) {
	c.total++
	c.packages += cmp.Or(bin.Packages, smallBuild)
}

// next is what precedes the name of the next one, nothing where it is the only one.
func (c *counter) next() string {
	if c.last++; c.total <= 1 {
		return ""
	}
	return fmt.Sprintf("server %d of %d, ", c.last, c.total)
}

// left is how long the rest takes at the pace until now, once so many more packages are compiled. It is empty if nothing is left.
func (c *counter) left(packages int) string {
	c.done += packages
	if c.done >= c.packages {
		return ""
	}
	rest := time.Since(c.begun) * time.Duration(c.packages-c.done) / time.Duration(c.done)
	return fmt.Sprintf("; about %d min left for the rest", 1+rest/time.Minute)
}

// Program builds a main package of this checkout into the file binary, as far as Go's cache lacks it. Progress goes to log.
func Program(ctx context.Context, log *Progress, pkg, binary string) error {
	dir, err := Dir(ctx, ".")
	if err != nil {
		return err
	}
	return run(ctx, log, dir, binary, binary, []string{"-buildvcs=false", pkg})
}
