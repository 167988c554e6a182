package eureka

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// AppEntries implements [registry.AppEntrySteerer] by the status override of the application's instance ID: no renewal of
// the application's and no registration with UP undoes it, and it goes with the entry.
func (r *Registry) AppEntries() registry.AppRegistry { return appEntries{r} }

// appEntries is not the driver itself: it lists nothing and renews nothing.
type appEntries struct{ driver *Registry }

var _ registry.EntryMatcher = appEntries{}

// Register removes the override, whoever set it.
func (a appEntries) Register(ctx context.Context, in registry.Instance) error {
	return a.driver.change(ctx, "putting back the application's entry of", in, call.putAppBack)
}

// FailOver sets an override.
func (a appEntries) FailOver(ctx context.Context, in registry.Instance) error {
	return a.driver.change(ctx, "taking out the application's entry of", in, call.takeAppOut)
}

// Deregister has nothing to remove once the entry has gone: the override went with it.
func (a appEntries) Deregister(ctx context.Context, in registry.Instance) error {
	return a.FailOver(ctx, in)
}

// Get reads the registry itself, past the server's caches, but for the IDs at the address and for entries whose lease has
// ended: those the registry hides, and clients are still given them.
func (a appEntries) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = a.driver.change(ctx, "asking for the application's entry of", in, func(c call, ctx context.Context) (err error) {
		state, err = c.appState(ctx)
		return err
	})
	return state, err
}

// MayBeOne implements [registry.EntryMatcher]: one instance can have a plain and a secure port.
func (appEntries) MayBeOne(a, b registry.Instance) bool {
	return a.Address == b.Address && strings.EqualFold(a.Service, b.Service)
}

// appEntry is an application's own entry, and the calls for it.
type appEntry struct {
	call

	info *instanceInfo
}

// overridden reports whether the status is that of an override. Else the application itself does: DOWN and STARTING are
// believed whatever the override is.
func (e appEntry) overridden() bool { return e.info.OverriddenStatus == e.info.Status }

func (c call) putAppBack(ctx context.Context) error {
	entries, err := c.appEntriesHere(ctx, place.get) // one that only another peer has comes here by itself
	if err == nil && len(entries) == 0 {
		err = c.serves(ctx)
	}
	if err != nil {
		return err
	}
	said := []string{}
	up := false
	for _, e := range entries {
		if e.info.Status != statusUp && e.overridden() {
			if e.info, err = e.readAfter(ctx, e.clearOverride); err != nil {
				return err
			}
		}
		up = up || e.info.Status == statusUp
		said = append(said, fmt.Sprintf("%q has status %s", e.info.InstanceID, e.info.Status))
	}
	switch {
	case up:
		return c.several(entries)
	case len(entries) == 0:
		return registry.NotRegistered(fmt.Errorf("no instance of %s at %s has IP %s and port %d, or its lease has ended",
			upperASCII(c.in.Service), c.server, c.in.Address, c.in.Port))
	}
	return registry.NotRegistered(fmt.Errorf("the application does not report that it is up: %s", strings.Join(said, ", ")))
}

func (c call) takeAppOut(ctx context.Context) error {
	entries, err := c.appEntries(ctx, place.find)
	if err != nil {
		return err
	}
	for _, e := range entries {
		// Of one that is not up the override is set too: it may say UP at any time.
		if e.info.OverriddenStatus == statusOutOfService && e.info.Status != statusUp {
			continue
		}
		if err := e.takeOut(ctx); err != nil {
			return err
		}
	}
	return c.several(entries)
}

// several returns an error that lists the entries at one place, if they are more than one.
func (c call) several(entries []appEntry) error {
	if len(entries) <= 1 {
		return nil
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, strconv.Quote(e.info.InstanceID))
	}
	return registry.SeveralEntries(fmt.Errorf("%d instances of %s have IP %s and port %d: %s",
		len(ids), upperASCII(c.in.Service), c.in.Address, c.in.Port, strings.Join(ids, ", ")))
}

func (c call) appState(ctx context.Context) (registry.State, error) {
	entries, err := c.appEntries(ctx, place.given)
	if err != nil || len(entries) == 0 {
		return registry.Absent, err
	}
	for _, e := range entries {
		if e.info.Status == statusUp { // clients are given no other
			return registry.InService, nil
		}
	}
	return registry.OutOfService, nil
}

// appEntries reads what applications have at the instance's place, by the first peer that has any.
func (c call) appEntries(ctx context.Context, read func(place, context.Context) (*instanceInfo, error)) ([]appEntry, error) {
	var entries []appEntry
	err := c.anywhere(ctx, func(c call, ctx context.Context) (_ bool, err error) {
		entries, err = c.appEntriesHere(ctx, read)
		return len(entries) > 0, err
	})
	if err == nil && len(entries) == 0 {
		return nil, c.serves(ctx)
	}
	return entries, err
}

func (c call) appEntriesHere(ctx context.Context, read func(place, context.Context) (*instanceInfo, error)) ([]appEntry, error) {
	places, err := c.places(ctx)
	if err != nil {
		return nil, err
	}
	var entries []appEntry
	for _, p := range places {
		info, err := read(p, ctx)
		if err != nil {
			return nil, err
		}
		if info != nil && info.isAppOf(c.in) {
			entries = append(entries, appEntry{p.call, info})
		}
	}
	return entries, nil
}

// place is an ID under which an application's entry may stand.
type place struct {
	call

	// listed is the entry in the server's list, nil if that has none, and now is the time there.
	listed *instanceInfo
	now    time.Time
}

// places returns the IDs at the address, which are the server's to tell, from its cache. Of an entry that is too new to stand
// there, they are those that clients commonly make.
func (c call) places(ctx context.Context) ([]place, error) {
	infos, now, err := c.application(ctx)
	if err != nil {
		return nil, err
	}
	var places []place
	for _, info := range infos {
		if info.isAppOf(c.in) {
			places = append(places, place{c.at(info.InstanceID), &info, now})
		}
	}
	if len(places) > 0 {
		return places, nil
	}
	for _, id := range usualIDs(c.in) {
		places = append(places, place{call: c.at(id)})
	}
	return places, nil
}

// find is [call.find] for an entry that clients may be given. An ID that was guessed is not worth a renewal.
func (p place) find(ctx context.Context) (*instanceInfo, error) {
	if p.listed == nil {
		return p.get(ctx)
	}
	return p.call.find(ctx)
}

// given reads the entry, also one that the registry hides since its lease has ended and that clients are still given. It renews
// nothing: an entry whose application has died would never go.
func (p place) given(ctx context.Context) (*instanceInfo, error) {
	got, err := p.get(ctx)
	if got != nil || err != nil || p.listed == nil || p.listed.Status != statusUp {
		return got, err
	}
	if p.listed.lastsAt(p.now) { // only a removal hides it, and the list is older
		return nil, nil
	}
	return p.listed, nil
}

// usualIDs are what Spring's client makes of an instance by default, with a preference for the address, and what people
// often write.
func usualIDs(in registry.Instance) []string {
	ids := []string{fmt.Sprintf("%s:%s:%d", in.Pod, in.Service, in.Port)}
	for _, address := range slices.Compact([]string{in.Address, driverkit.JavaForm(in.Address)}) {
		ids = append(ids, fmt.Sprintf("%s:%s:%d", address, in.Service, in.Port))
	}
	return append(ids, in.Endpoint())
}

// at is the call for another ID of the application.
func (c call) at(id string) call {
	c.id, c.path = id, c.app+"/"+url.PathEscape(id)
	return c
}

// listed is an application out of a server's cache.
type listed struct {
	// at are its instances by their address as Kubernetes writes it.
	at map[string][]instanceInfo
	// now is the time at the server: zero if the answer has none.
	now time.Time
}

// application reads the instances at the call's address, out of the server's cache, and the time there. Eureka has no request for less than
// the whole application, so calls that ask at the same moment share one.
func (c call) application(ctx context.Context) (infos []instanceInfo, now time.Time, err error) {
	ask := c.readApplication
	if !c.server.IsAlone() { // such a connection's answer is not that of any other
		ask = func(ctx context.Context) (listed, error) {
			return c.applications.Ask(ctx, c.server.String()+c.app, c.readApplication)
		}
	}
	app, err := ask(ctx)
	return app.at[canonical(c.in.Address)], app.now, err
}

func (c call) readApplication(ctx context.Context) (listed, error) {
	var app application
	l := listed{at: map[string][]instanceInfo{}}
	answer, err := c.read(ctx, c.app, &app)
	if answer != nil {
		l.now, _ = http.ParseTime(answer.Header.Get("Date"))
	}
	for _, info := range app.Application.Instance {
		at := canonical(info.IPAddr)
		l.at[at] = append(l.at[at], info)
	}
	return l, err
}

// canonical is an address as Kubernetes writes it.
func canonical(address string) string { return driverkit.Foreign("", address, 0).Address }

// isAppOf reports whether an application wrote the entry, and its plain or its secure port is the instance's.
func (i instanceInfo) isAppOf(in registry.Instance) bool {
	port := strconv.Itoa(in.Port)
	return i.uid() == "" && driverkit.SameAddress(i.IPAddr, in.Address) && (i.Port.is(port) || i.SecurePort.is(port))
}

// is reports whether the port has this number and is served. Servers write enabled as a string.
func (p portInfo) is(number string) bool {
	return p.Number.String() == number && fmt.Sprint(p.Enabled) == "true"
}
