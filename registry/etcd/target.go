package etcd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

const serviceHolder = "{service}"

// target is the option of that name, around the service. The service is a whole part between slashes and has none itself:
// so two instances never have one key, and no target lies within another, whose readers would be given its instances too.
type target struct {
	before string // empty, or ends with a slash
	after  string // empty, or begins with one
	format format
	scheme string // of what Kratos' clients are given
	// bare: the entries are stored in records, and each has a second key for its readers, which holds the address alone.
	bare bool
}

// records is the folder of entries whose readers' format has no room for an ownership tag.
const records = "rollcall/"

// targetOf returns the target that the options ask for.
func targetOf(o Options) (target, error) {
	f := formatOf(o.Format)
	text := o.Target
	if text == "" {
		text = f.target
	}
	rooted := o.Format != formatGRPC && strings.HasPrefix(text, "/")
	if rooted {
		text = text[1:]
	}
	t, err := parseTarget(text)
	if rooted {
		t.before = "/" + t.before
	}
	if t.bare = o.Format == formatGoZero; t.bare {
		t.before = records + t.before
	}
	t.format, t.scheme = f, o.Scheme
	return t, err
}

func parseTarget(text string) (target, error) {
	before, after, found := strings.Cut(text, serviceHolder)
	switch {
	case !found:
		return target{}, fmt.Errorf("must have the part %s", serviceHolder)
	case strings.ContainsAny(before+after, "{}"):
		return target{}, fmt.Errorf("must have %s once, and no other braces", serviceHolder)
	case before != "" && !strings.HasSuffix(before, "/"), after != "" && !strings.HasPrefix(after, "/"):
		return target{}, fmt.Errorf("must have %s as a whole part between slashes", serviceHolder)
	case strings.HasPrefix(text, "/"), strings.HasSuffix(text, "/"), strings.Contains(text, "//"):
		return target{}, errors.New("must neither begin nor end with a slash, nor have two together")
	}
	return target{before: before, after: after, format: formatOf(formatGRPC)}, nil
}

// bareKey is the key that readers of a record's format read.
func bareKey(record string) string { return strings.TrimPrefix(record, records) }

// folder is what the keys of all entries of the instance's service begin with.
func (t target) folder(in registry.Instance) string {
	return t.before + escape(in.Service) + t.after + "/"
}

// key is where the entry of an instance is stored. The address is an IP, and needs no escape.
func (t target) key(in registry.Instance) string {
	return t.folder(in) + t.format.leaf(in)
}

// service returns the service of the entry at a key.
func (t target) service(key string) (string, bool) {
	rest, found := strings.CutPrefix(key, t.before)
	service, rest, cut := strings.Cut(rest, "/")
	if !found || !cut || !strings.HasPrefix("/"+rest, t.after+"/") {
		return "", false
	}
	return unescape(service), true
}

// escape leaves a name as it is, unless it has a slash or a percent sign.
func escape(name string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(name)
}

func unescape(name string) string {
	return strings.NewReplacer("%25", "%", "%2F", "/").Replace(name)
}
