package nacos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// oneAddress leads to the servers of one cluster by turns.
func oneAddress(t *testing.T, servers ...*fake) (address string) {
	t.Helper()
	var members, urls []string
	for _, f := range servers {
		members, urls = append(members, strings.TrimPrefix(f.URL, "http://")), append(urls, f.URL)
	}
	for _, f := range servers {
		f.members = members
	}
	return drivertest.InTurn(t, urls...)
}

// TestSeveralServersBehindOneAddress: two of three lag behind, and have no entry that clients of the third one are given.
func TestSeveralServersBehindOneAddress(t *testing.T) {
	t.Parallel()
	for name, tc := range laggingCases() {
		for _, version := range []string{"v1", "v3"} {
			for _, tells := range []bool{true, false} { // an administrator's API
				t.Run(fmt.Sprint(name, version, tells), func(t *testing.T) {
					t.Parallel()
					in, one, two, has := drivertest.Pod(1), newFake(t, version), newFake(t, version), newFake(t, version)
					if tc.app {
						has.registersItself(in, true)
					} else {
						expect.NoError(t, at(t, has.URL, `{}`).Register(t.Context(), in))
					}
					for _, lagging := range []*fake{one, two} { // what they are told is in the Raft, and they have yet to carry it out
						lagging.forwardsTo(has)
					}
					d := at(t, oneAddress(t, one, two, has), `{}`)
					if !tells {
						one.members, two.members, has.members = []string{}, []string{}, []string{}
					}
					expect.NoError(t, tc.call(d, t.Context(), in))
					has.mu.Lock()
					defer has.mu.Unlock()
					if !tc.right(has) {
						t.Errorf("the server that has it has %v and %v\nreason: %s", has.posted, has.put, tc.reason)
					}
				})
			}
		}
	}
}

// TestUnlistedMembers are told of if there are more of them than addresses.
func TestUnlistedMembers(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v3"} {
		one, two := newFake(t, version), newFake(t, version)
		address := oneAddress(t, one, two)
		for endpoint, want := range map[string][]string{address: slices.Sorted(slices.Values(one.members)), one.URL + "," + two.URL: nil} {
			d := at(t, endpoint, `{}`)
			_, err := d.List(t.Context(), "test")
			expect.NoError(t, err)
			expect.Equal(t, want, d.UnlistedMembers(), "the servers behind %s", endpoint)
		}
	}
}

// TestEachServerHasAnAddress, so a read that finds nothing costs no more than before.
func TestEachServerHasAnAddress(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{"apiVersion":"v3"}`)
	expect.NoError(t, d.FailOver(t.Context(), drivertest.Pod(1)))
	if asked := f.requests(); len(asked) != 1 {
		t.Errorf("asked %q, want one read", asked)
	}
}

// TestQuestionsAboutAServiceOfSeveralServers, which all calls of a moment share: the first one lags behind, and knows neither the form in
// which the application has written its address nor the Nacos cluster in which clients are given it.
func TestQuestionsAboutAServiceOfSeveralServers(t *testing.T) {
	t.Parallel()
	const long, short = "2001:db8:0:0:1:0:0:a", "2001:db8::1:0:0:a"
	expect.Each(t, map[string]struct {
		reason, address, cluster, want string
	}{
		"another form of the address": {"clients are given it", long, "DEFAULT", ""},
		"another Nacos cluster":       {"clients that name none are given it", short, "GZ", "in Nacos cluster GZ"},
	}, func(t *testing.T, tc struct{ reason, address, cluster, want string }) {
		for _, version := range []string{"v1", "v3"} {
			for _, addresses := range []int{1, 2} {
				in, lags, has := drivertest.Pod(1), newFake(t, version), newFake(t, version)
				key := tc.address + " 80"
				in.Address = tc.address
				has.registersItself(in, true)
				has.posted[key].Set("clusterName", tc.cluster)
				in.Address = short
				lags.forwardsTo(has)
				endpoint := oneAddress(t, lags, has, has, has) // which leads the connections that follow to the other one
				if addresses > 1 {
					endpoint = lags.URL + "," + has.URL
				}
				err := at(t, endpoint, `{}`).AppEntries().FailOver(t.Context(), in)
				if tc.want != "" {
					expect.Error(t, fmt.Sprintf("%s, %d addresses: %s", version, addresses, tc.reason), err, tc.want)
					continue
				}
				expect.NoError(t, err)
				has.mu.Lock()
				if got := has.put[key].Get("enabled"); got != "false" {
					t.Errorf("%s, %d addresses: enabled is %q, want it false: %s", version, addresses, got, tc.reason)
				}
				has.mu.Unlock()
			}
		}
	})
}
