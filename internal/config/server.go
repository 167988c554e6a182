package config

import (
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// SameServer reports whether both sections mean one place in one server, as far as they show: they have the same driver and
// options, and an address in common. Two DNS names for one address count as two. A registry that needs no address is in
// this process, and two of them are never the same.
func (r Registry) SameServer(other Registry) bool {
	theirs := other.addresses()
	return r.Driver == other.Driver && reflect.DeepEqual(r.options(), other.options()) &&
		slices.ContainsFunc(r.addresses(), func(a string) bool { return slices.Contains(theirs, a) })
}

// addresses returns those of the endpoint, each in one form. A path behind the last of several stands for all where they
// are no URLs: that is ZooKeeper's chroot.
func (r Registry) addresses() []string {
	urls := strings.Contains(r.Endpoint, "://")
	hosts, path := r.Endpoint, ""
	if !urls {
		hosts, path, _ = strings.Cut(r.Endpoint, "/")
	}
	var addresses []string
	for a := range strings.SplitSeq(hosts, ",") {
		switch a = strings.TrimSpace(a); {
		case a == "":
		case urls:
			addresses = append(addresses, normalURL(a))
		default:
			addresses = append(addresses, strings.ToLower(a)+"/"+strings.TrimRight(path, "/"))
		}
	}
	return addresses
}

// normalURL has the scheme and the host in lower case, a port always, and no slash at the end.
func normalURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text // the driver says what is wrong
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port + strings.TrimRight(u.Path, "/")
}

// options are as they would be decoded; none and an empty object are the same.
func (r Registry) options() map[string]any {
	options := map[string]any{}
	_ = json.Unmarshal(r.Options, &options) // what is no object was refused
	return options
}
