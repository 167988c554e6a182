package nacos

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// metaWrite is the key of the metadata under which an entry has the write that it shows; see [stamp].
const metaWrite = registry.MetaPrefix + "write"

// host is an instance as the server's readers get it.
type host struct {
	IP          string            `json:"ip"`
	Port        int               `json:"port"`
	ClusterName string            `json:"clusterName"`
	Enabled     *bool             `json:"enabled"` // v1 and v2 don't tell it of a single instance
	Healthy     bool              `json:"healthy"`
	Valid       *bool             `json:"valid"` // in a listing, what Healthy is from version 3 on
	Weight      float64           `json:"weight"`
	Metadata    map[string]string `json:"metadata"`
}

func (h *host) uid() string { return h.Metadata[registry.MetaUID] }

// lasts reports whether the entry has the lease that the options ask for.
func (h *host) lasts(opts Options) bool {
	want := opts.lease()
	for _, key := range leaseKeys() {
		if h.Metadata[key] != want[key] {
			return false
		}
	}
	return true
}

// stamp is that of the last write, "" if Rollcall did not write it.
func (h *host) stamp() stamp {
	if h == nil {
		return ""
	}
	return stamp(h.Metadata[metaWrite])
}

// is holds for the entry of this pod. No pod has the UID "".
func (h *host) is(in registry.Instance) bool { return h != nil && in.UID != "" && h.uid() == in.UID }

// isOwn holds for an entry that a call which takes this pod out may touch.
func (h *host) isOwn(in registry.Instance) bool {
	return h != nil && in.OwnsMeta(h.Metadata)
}

// isForeign holds for what clients are given and no Rollcall has written.
func (h *host) isForeign() bool { return h != nil && h.uid() == "" && (h.Enabled == nil || *h.Enabled) }

// isHeldOut holds for an application's entry that a removal of a pod's has left out of rotation.
func (h *host) isHeldOut() bool {
	return h != nil && h.uid() == "" && h.stamp().state() == registry.OutOfService
}

// How much an entry of one server shows compared with those of others.
const (
	nothing  = iota
	another  // pod's
	somebody // else's, which clients may be given
	sought
)

func (h *host) says(wanted func(*host) bool) int {
	switch {
	case h == nil:
		return nothing
	case wanted(h):
		return sought
	case h.uid() == "":
		return somebody
	}
	return another
}

// decodeHost reads the answer to readInstance, which must be about the instance that was asked for.
func decodeHost(a *answer, in registry.Instance) (*host, error) {
	h := &host{}
	if err := a.decode(h); err != nil {
		return nil, err
	}
	if h.IP != in.Address || h.Port != in.Port {
		return nil, errors.New("the answer is not about this instance")
	}
	return h, nil
}

// envelope is what v2 and v3 put around their answers, and v1 around none.
type envelope struct {
	Code    *int            `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// decode reads the answer's content.
func (a *answer) decode(into any) error {
	body := a.body
	if !a.route.old {
		var e envelope
		if err := json.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("decoding the answer: %w", err)
		}
		body = e.Data
	}
	if len(body) == 0 || string(body) == "null" {
		return errors.New("the answer is empty")
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return nil
}

// check returns why an instance can't be written. Nacos takes some of it, and makes something else of it.
func check(in registry.Instance) error {
	if err := driverkit.CheckInstance(in); err != nil {
		return err
	}
	if strings.Contains(in.Service, "@@") || strings.TrimSpace(in.Service) != in.Service {
		return registry.Terminal(fmt.Errorf(
			"the service is called %q: Nacos takes what is before @@ for the group, and cuts white space off", in.Service))
	}
	for _, key := range leaseKeys() {
		if _, set := in.Metadata[key]; set {
			return registry.Terminal(
				fmt.Errorf("the instance's metadata has %s: set options.heartbeatInterval in its place", key))
		}
	}
	return nil
}

// maxMeta is how long all keys and values may be together, in characters, by the default of Nacos' ParamCheckRule.
const maxMeta = 1024

// size is that of metadata, in bytes, which are no fewer than characters.
func size(meta map[string]string) (bytes int) {
	for key, value := range meta {
		bytes += len(key) + len(value)
	}
	return bytes
}

// asciiJSON encodes metadata so that nothing on the way can change it: not who takes a form for Latin-1, as Tomcat does
// if it is not told otherwise, nor who decodes a parameter once more than it was encoded.
func asciiJSON(meta map[string]string) (string, error) {
	raw, err := json.Marshal(meta)
	if err != nil {
		return "", fmt.Errorf("encoding the metadata: %w", err)
	}
	var b strings.Builder
	for _, c := range string(raw) {
		switch {
		case c == '%' || c == '+' || c == 0x7f || c > 0x7f && c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		case c > 0xffff:
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			b.WriteRune(c)
		}
	}
	return b.String(), nil
}

// weightOf is the instance's weight as Nacos takes it.
func weightOf(in registry.Instance) string { return strconv.Itoa(max(in.Weight, 1)) }
