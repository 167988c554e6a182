package driverkit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// endpoint is one that is read as a list, or refused with these words.
type endpoint struct {
	reason   string
	endpoint string
	want     []string
	says     string // "": no error
}

func testEndpoints(t *testing.T, read func(registry.Config) ([]string, error), cases map[string]endpoint) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := read(registry.Config{Endpoint: tc.endpoint})
			switch {
			case tc.says != "":
				expectField(t, err, "endpoint", tc.says, tc.reason)
			case err != nil || !slices.Equal(got, tc.want):
				t.Errorf("got %q, error %v; want %q\nreason: %s", got, err, tc.want, tc.reason)
			}
			if err != nil && strings.Contains(err.Error(), "123456789") {
				t.Errorf("the error repeats a secret: %v", err)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	testEndpoints(t, driverkit.Addresses, map[string]endpoint{
		"one":           {reason: "the plain case", endpoint: "a:1", want: []string{"a:1"}},
		"several":       {reason: "in their order", endpoint: "b:1,a:1,c:1", want: []string{"b:1", "a:1", "c:1"}},
		"blanks around": {reason: "a list is easier to read with them", endpoint: " a:1 ,\n b:1 ", want: []string{"a:1", "b:1"}},
		"any form":      {reason: "what an address is, is the driver's matter", endpoint: "x://y/z?a", want: []string{"x://y/z?a"}},
		"none":          {reason: "there is no default", endpoint: "", says: "is missing"},
		"blank":         {reason: "there is no default", endpoint: " \n", says: "is missing"},
		"a comma":       {reason: "there is no address", endpoint: ",", says: "empty address"},
		"comma at end":  {reason: "something was forgotten", endpoint: "a:1,", says: "empty address"},
		"twice":         {reason: "it would count for two", endpoint: "a:1, b:1, a:1", says: "one address twice"},
	})
}

func TestHostPorts(t *testing.T) {
	t.Parallel()
	testEndpoints(t, driverkit.HostPorts, map[string]endpoint{
		"names":           {reason: "the plain case", endpoint: "zk-0.zk:2181,zk-1.zk:2181", want: []string{"zk-0.zk:2181", "zk-1.zk:2181"}},
		"IPv4":            {reason: "an address will do", endpoint: "10.0.0.1:2181", want: []string{"10.0.0.1:2181"}},
		"IPv6":            {reason: "in brackets, as everywhere", endpoint: "[fd00::1]:2181", want: []string{"[fd00::1]:2181"}},
		"none":            {reason: "there is no default", endpoint: "", says: "is missing"},
		"no port":         {reason: "there is no default", endpoint: "zk-0", says: "use host:port"},
		"empty port":      {reason: "there is no default", endpoint: "zk-0:", says: "use host:port"},
		"no host":         {reason: "it would be this machine", endpoint: ":2181", says: "use host:port"},
		"port zero":       {reason: "no server listens there", endpoint: "zk-0:0", says: "use host:port"},
		"port too large":  {reason: "there is none", endpoint: "zk-0:65536", says: "use host:port"},
		"a name for port": {reason: "which it is depends on the machine", endpoint: "zk-0:zookeeper", says: "use host:port"},
		"bare IPv6":       {reason: "where the port begins can't be told", endpoint: "fd00::1:2181", says: "use host:port"},
		"URL":             {reason: "it is another driver's form", endpoint: "http://zk-0:2181", says: "use host:port"},
		"path":            {reason: "it would be a part of the name", endpoint: "zk-0/chroot:2181", says: "use host:port"},
		"password":        {reason: "the error must not repeat it", endpoint: "me@hunter2:2181", says: "use host:port"},
		"the second":      {reason: "all are looked at", endpoint: "zk-0:2181,zk-1", says: "use host:port"},
	})
}

func TestURLs(t *testing.T) {
	t.Parallel()
	urls := func(cfg registry.Config) (texts []string, err error) {
		parsed, err := driverkit.URLs(cfg)
		for _, u := range parsed {
			texts = append(texts, u.String())
		}
		return texts, err
	}
	testEndpoints(t, urls, map[string]endpoint{
		"http":         {reason: "within one cluster it may do", endpoint: "http://a", want: []string{"http://a"}},
		"https":        {reason: "the plain case", endpoint: "https://a.example.com:8443", want: []string{"https://a.example.com:8443"}},
		"path":         {reason: "a registry may be behind a proxy", endpoint: "https://a/b%2Fc/", want: []string{"https://a/b%2Fc/"}},
		"IPv6":         {reason: "in brackets, as everywhere", endpoint: "http://[fd00::1]:80/x", want: []string{"http://[fd00::1]:80/x"}},
		"several":      {reason: "peers", endpoint: "https://a/x, https://b/y", want: []string{"https://a/x", "https://b/y"}},
		"none":         {reason: "there is no default", endpoint: "", says: "is missing"},
		"no scheme":    {reason: "a bare host is ambiguous", endpoint: "a.example.com", says: "must begin with http"},
		"host:port":    {reason: "its host is read as a scheme", endpoint: "a.example.com:80", says: "must begin with http"},
		"other scheme": {reason: "only HTTP is spoken", endpoint: "ftp://a", says: "must begin with http"},
		"no host":      {reason: "there is no server to call", endpoint: "https:///x", says: "has no host"},
		"port zero":    {reason: "no server listens there", endpoint: "http://a:0", says: "a port from 1 to 65535"},
		"port too large": {
			reason: "there is none", endpoint: "http://a:65536", says: "a port from 1 to 65535",
		},
		"two schemes":      {reason: "one of the two would be open to all", endpoint: "https://a,http://b", says: "http and https"},
		"the second":       {reason: "all are looked at", endpoint: "https://a,b", says: "must begin with http"},
		"user":             {reason: "it is shown wherever the endpoint is", endpoint: "https://me@a", says: "must not have a user"},
		"password":         {reason: "it is shown wherever the endpoint is", endpoint: "https://me:hunter2@a", says: "must not have a user"},
		"query":            {reason: "each call has its own", endpoint: "https://a?b=c", says: "must not have a query"},
		"empty query":      {reason: "each call has its own", endpoint: "https://a?", says: "must not have a query"},
		"fragment":         {reason: "it is never sent", endpoint: "https://a#b", says: "must not have a fragment"},
		"blank in it":      {reason: "it is no URL", endpoint: "https://a b", says: "is not a URL"},
		"bad escape":       {reason: "the error must not repeat a password", endpoint: "https://me:hunter2%zz@a", says: "is not a URL"},
		"password as port": {reason: "a slash in it ends the host there", endpoint: "https://me:hunter2/x@a", says: "is not a URL"},
		"number as port": {
			reason: "a slash in a password ends the host there", endpoint: "https://me:123456789/x@a", says: "a port from 1 to 65535",
		},
	})
}

func TestURLsRefuseFilesThatAreOfNoUse(t *testing.T) {
	t.Parallel()
	for field, files := range map[string]registry.TLS{
		"tls.caFile":   {CAFile: "/ca", CertFile: "/cert", KeyFile: "/key"},
		"tls.certFile": {CertFile: "/cert", KeyFile: "/key"},
		"tls.keyFile":  {KeyFile: "/key"},
	} {
		_, err := driverkit.URLs(registry.Config{Endpoint: "http://a", TLS: files})
		expectField(t, err, field, "has no effect", "it promises what is not there")
		_, err = driverkit.URLs(registry.Config{Endpoint: "https://a", TLS: files})
		expectField(t, err, "", "", "there it is of use")
	}
}
