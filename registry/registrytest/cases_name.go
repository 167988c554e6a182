package registrytest

import (
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// nameCases check that what is written is exactly what was given.
func nameCases() []testCase {
	return []testCase{
		{
			name: "InputNotChanged",
			why:  "a name that was tidied up is another name: clients look for one, and a removal for the other",
			run:  inputNotChanged,
		},
		{
			name:  "OddServiceNames",
			why:   "a name that is not escaped hits another service, or none",
			needs: []Capability{AnyServiceName, EachApart},
			run:   oddServiceNames,
		},
		{
			name:  "UnprintableNames",
			why:   "a name that is taken and can't be read has an entry that nobody can confirm",
			needs: []Capability{EachApart},
			run:   unprintableNames,
		},
		{
			name: "OddMarks",
			why:  "an ownership tag that is not read back as it was written never matches, and its entry is never removed",
			run:  oddMarks,
		},
		{
			name: "IPv6",
			why:  "pods have IPv6 addresses, whose colons do not begin a port",
			run: func(w *world) {
				six := w.pod(1)
				six.Address = "fd00:10:244::1"
				mapped := w.pod(2)
				mapped.Address = "2001:db8::8080"
				d := w.registered(six, mapped)
				w.expect(inService(six), inService(mapped))
				w.failOver(d, six)
				w.expect(outOfService(six), inService(mapped))
				w.deregister(w.newProcess(), six)
				w.expect(inService(mapped))
			},
		},
	}
}

func inputNotChanged(w *world) {
	in := registry.Instance{
		Service: w.service, Address: "10.0.0.1", Port: 65535,
		Cluster: w.cluster, Namespace: "Shop", Pod: "Web.0", UID: "B0C4-Uid",
	}
	if !w.h.lacks(MixedCaseName) {
		in.Service += ".Shop_v2"
	}
	d := w.registered(in)
	w.expect(inService(in))
	w.failOver(d, in)
	w.expect(outOfService(in))
	w.deregister(d, in)
	w.expect()
}

// oddStrings are names that something on the way to a registry could misread. Several differ only in how they are escaped.
func oddStrings() []string {
	return []string{
		"a b", "a+b", "a%20b", "a/b", "a%2Fb", "a//b", "/a", "a/", "..", "../a", ".", "a?b=c&d=e#f", "a;b", "a:b@c", "a,b=c",
		"ünïcödé", "名前", "🦆", "'a'", `"a"`, `a\b`, "{a}", "$(a)", "a|b", "a*", "<a&b>", "A", "a",
		strings.Repeat("long-", 50),
	}
}

// oddServiceNames puts all of them at one address, so that only the service tells them apart.
func oddServiceNames(w *world) {
	d := w.newProcess()
	var all []registry.Entry
	for _, odd := range oddStrings() {
		in := w.pod(1)
		in.Service = odd + w.service
		w.register(d, in)
		all = append(all, inService(in))
	}
	w.expect(all...)
	for i := range all {
		w.failOver(d, all[i].Instance)
		all[i].State = registry.OutOfService
	}
	w.expect(all...)
	var left []registry.Entry
	for i, e := range all {
		if i%2 == 0 {
			left = append(left, e)
			continue
		}
		w.deregister(w.newProcess(), e.Instance)
	}
	w.expect(left...)
	for _, e := range left {
		w.deregister(d, e.Instance)
	}
	w.expect()
}

// unprintableNames has the driver refuse a name for good, or read what it has written.
func unprintableNames(w *world) {
	d := w.newProcess()
	var taken []registry.Entry
	for i, odd := range []string{"\x01", "\t", "\x7f", "\u0085", "\u00a0", "\u200b", "\u2028", "\ufeff"} {
		in := w.pod(i)
		in.Service = "a" + odd + w.service
		switch err := w.call(opRegister, d, in); {
		case err == nil:
			taken = append(taken, inService(in))
		case registry.CodeOf(err) != registry.CodeTerminal:
			w.Fatalf("%s of %s: got error %q, want success or a terminal error", opRegister, show(in), err)
		}
	}
	if w.has[isGetter] {
		for _, e := range taken {
			w.expectSays(d, e.Instance, registry.InService)
		}
	}
	w.expect(taken...)
	for _, e := range taken {
		w.deregister(w.newProcess(), e.Instance)
	}
	w.expect()
}

func oddMarks(w *world) {
	d := w.newProcess()
	var all []registry.Entry
	for i, odd := range oddStrings() {
		in := w.pod(i)
		in.Namespace, in.Pod, in.UID = "ns-"+odd, "pod-"+odd, "uid-"+odd
		w.register(d, in)
		all = append(all, inService(in))
	}
	w.expect(all...)
	for i := range all {
		w.failOver(w.newProcess(), all[i].Instance)
		all[i].State = registry.OutOfService
	}
	w.expect(all...)
	for _, e := range all {
		w.deregister(w.newProcess(), e.Instance)
	}
	w.expect()
}
