package eureka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// call is one call for one instance on one peer.
type call struct {
	peer

	in   registry.Instance
	app  string // the path of the application
	id   string // of the instance
	path string // the path of the instance
}

// peer is one of the servers, which replicate one another.
type peer struct {
	*Registry

	server driverkit.Server
}

func newCall(p peer, in registry.Instance) call {
	app := "/apps/" + url.PathEscape(upperASCII(in.Service))
	return call{peer: p, in: in, app: app}.at(instanceID(in))
}

// send makes one request. An answer whose status is not 2xx is an error of the right class.
func (p peer) send(ctx context.Context, method, path string, body []byte) (*driverkit.Answer, error) {
	return p.sendAs(ctx, p.header, method, path, body)
}

func (p peer) sendAs(ctx context.Context, header http.Header, method, path string, body []byte) (*driverkit.Answer, error) {
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	answer, err := p.server.Do(ctx, driverkit.Request{
		Method: method, Path: path, Query: values, Header: header, Body: body, Limit: maxAnswer,
		Check: func(a *driverkit.Answer) error { return driverkit.Away(driverkit.CheckNoPage(a)) },
	})
	switch {
	case err != nil:
		return nil, err
	case !answer.OK():
		return nil, p.refusal(method, answer)
	}
	return answer, nil
}

// register posts the instance and then does what it takes until the registry itself shows that it is ours and UP. In most
// cases that is nothing.
func (c call) register(ctx context.Context) error {
	got, err := c.postAs(ctx, statusUp)
	if err == nil && got.Status != statusUp {
		got, err = c.readAfter(ctx, c.clearOverride)
	}
	if err == nil && got.Status != statusUp {
		got, err = c.readAfter(ctx, c.override(statusUp), c.clearOverride)
	}
	switch {
	case err != nil:
		return err
	case got.uid() != c.in.UID:
		return fmt.Errorf("%s acknowledged the change, but has the entry of another pod", c.server)
	case got.Status != statusUp:
		return c.keeps(got.Status)
	}
	return c.copy(ctx, got)
}

// postAs posts the instance with a status, once more if the entry that is there is of a later time and stays, and returns what the
// registry has then.
func (c call) postAs(ctx context.Context, status string) (*instanceInfo, error) {
	got, err := c.readAfter(ctx, c.post(status, ""))
	if err == nil && (!c.isPosted(got) || got.Status != status) {
		return c.readAfter(ctx, c.post(status, later(got.LastDirtyTimestamp)))
	}
	return got, err
}

// keeps is the error of a change after which the entry still has the status.
func (c call) keeps(status string) error {
	return fmt.Errorf("%s acknowledged it, but the entry has status %s", c.server, status)
}

// failOver posts the instance with a status that no client is given and that the next POST undoes. An override would do the same at this
// peer, but has no time: one that another peer carries out after its removal stays there.
func (c call) failOver(ctx context.Context) error {
	c, got, err := c.locate(ctx)
	switch {
	case err != nil:
		return err
	case got != nil && !c.in.OwnsMeta(got.Metadata):
		return nil
	case got != nil && (got.Status == statusStarting || got.Status == statusOutOfService):
		return c.copyOut(ctx, got)
	}
	got, err = c.postAs(ctx, statusStarting)
	switch {
	case err != nil:
		return err
	case got.Status == statusUp: // somebody's override
		return c.takeOut(ctx)
	}
	return c.copy(ctx, got)
}

// takeOut overrides the status, and does so again if the registry then shows that clients are given the entry: a renewal
// that the server is carrying out puts back the status that it has read before (AbstractInstanceRegistry.renew).
func (c call) takeOut(ctx context.Context) error {
	for range 2 {
		got, err := c.readAfter(ctx, c.override(statusOutOfService))
		if err != nil || got.Status != statusUp {
			return err
		}
	}
	return c.keeps(statusUp)
}

func (c call) deregister(ctx context.Context) error {
	c, got, err := c.locate(ctx)
	switch {
	case err != nil:
		return err
	case got == nil:
		return c.serves(ctx)
	case !c.in.OwnsMeta(got.Metadata):
		return nil
	}
	_, err = c.send(ctx, http.MethodDelete, c.path, nil)
	if err != nil && (!driverkit.HasStatus(err, http.StatusNotFound) || c.members.Several(ctx)) { // else it went by itself
		return gone(err)
	}
	c.repeat(ctx, http.MethodDelete, c.path, nil, nil) // else an override stays at a peer, and keeps out what is registered there next
	return nil
}

func (c call) heartbeat(ctx context.Context) error {
	got, err := c.get(ctx)
	switch {
	case err != nil:
		return err
	case got == nil:
		return registry.NotRegistered(errors.New("there is no such entry, or its lease has ended"))
	case got.uid() != c.in.UID:
		return registry.NotRegistered(errors.New("the entry is of another pod"))
	}
	header := c.header
	if c.renewElsewhere(ctx, got) && c.members.More(ctx) == 0 {
		header = c.replicated
	}
	renewed, err := c.renew(ctx, header)
	switch {
	case err != nil:
		return err
	case !renewed:
		return registry.NotRegistered(errors.New("the registry requires it to be registered again"))
	}
	return nil
}

// renewElsewhere renews the lease at the other peers too, and gives the entry to those that lack it or have an older one, as this peer does
// when it replicates: while the two are cut off from each other, or after this one's clock was set back, it tells the others nothing, and
// they remove what has no lease. It reports whether all others have renewed it. Then this peer need not tell them: it does so half a second
// later, and gives one that lacks the entry the entry as it was, although it has been removed from both meanwhile.
func (c call) renewElsewhere(ctx context.Context, got *instanceInfo) (all bool) {
	renewal := url.Values{"status": {got.Status}, "lastDirtyTimestamp": {got.LastDirtyTimestamp.String()}}
	body, err := c.body(got.Status, got.LastDirtyTimestamp)
	if err != nil {
		return false
	}
	all = true
	c.tellOthers(ctx, 50, func(ctx context.Context, other driverkit.Server) { //nolint:mnd // it comes often: less for one that hangs
		answer, err := other.Do(ctx, driverkit.Request{Method: http.MethodPut, Path: c.path, Query: renewal, Header: c.replicated})
		if err == nil && answer.Status == http.StatusNotFound && got.Status != statusOutOfService {
			answer, err = other.Do(ctx, driverkit.Request{Method: http.MethodPost, Path: c.app, Header: c.replicated, Body: body})
		}
		all = all && err == nil && (answer.OK() || answer.Status == http.StatusConflict) // with which it has renewed a later entry
	})
	return all
}

// anywhere asks this peer and, if it has nothing, the others until one has something: a peer that has just started
// lacks what they have not replicated to it yet, or they were told nothing of a removal. If the address stands for several peers, it is
// asked again, on connections that may reach others. Another address that fails counts as one that has nothing. Later calls begin where
// they did: which of two peers is right about one entry does not show which is right about others.
func (c call) anywhere(ctx context.Context, look func(call, context.Context) (found bool, err error)) error {
	found, err := look(c, ctx)
	if found || err != nil {
		return err
	}
	for range c.members.More(ctx) {
		c.server = c.server.Alone(ctx)
		if found, err = look(c, ctx); found || err != nil {
			return err
		}
	}
	_ = c.client.Try(ctx, driverkit.Policy{After: c.server}, func(ctx context.Context, other driverkit.Server) error {
		c.server = other
		found, err := look(c, ctx)
		if err == nil && !found {
			err = errNothing
		}
		return err
	})
	return ctx.Err()
}

// locate is [call.find] at any peer, and returns the call at the one that has the entry.
func (c call) locate(ctx context.Context) (at call, got *instanceInfo, err error) {
	at = c
	err = c.anywhere(ctx, func(c call, ctx context.Context) (bool, error) {
		found, err := c.find(ctx)
		if found != nil {
			at, got = c, found
		}
		return found != nil, err
	})
	return at, got, err
}

// find reads the entry, also one whose lease has ended and which clients still see: renewing it at this peer alone shows it again.
func (c call) find(ctx context.Context) (*instanceInfo, error) {
	got, err := c.get(ctx)
	if got != nil || err != nil {
		return got, err
	}
	if renewed, err := c.renew(ctx, c.replicated); !renewed {
		return nil, err
	}
	return c.get(ctx)
}

// change is one request that changes something.
type change func(context.Context) error

// apply makes changes one after the other.
func (c call) apply(ctx context.Context, changes ...change) error {
	for _, change := range changes {
		if err := change(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readAfter makes changes and returns what the registry has then.
func (c call) readAfter(ctx context.Context, changes ...change) (*instanceInfo, error) {
	if err := c.apply(ctx, changes...); err != nil {
		return nil, err
	}
	got, err := c.get(ctx)
	if err == nil && got == nil {
		return nil, fmt.Errorf("%s acknowledged the change, but does not have the entry", c.server)
	}
	return got, err
}

// read decodes what the server has at a path. It returns nil if the server answers 404.
func (p peer) read(ctx context.Context, path string, into any) (*driverkit.Answer, error) {
	answer, err := p.send(ctx, http.MethodGet, path, nil)
	if driverkit.HasStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer.Body, into); err != nil {
		return nil, p.notEurekas(fmt.Errorf("decoding the answer: %w", err))
	}
	return answer, nil
}

// get reads the registry itself. It returns nil if there is no entry, or one whose lease has ended.
func (c call) get(ctx context.Context) (*instanceInfo, error) {
	var got envelope
	if answer, err := c.read(ctx, c.path, &got); answer == nil {
		return nil, err
	}
	if got.Instance == nil || got.Instance.InstanceID != c.id {
		return nil, c.notEurekas(errors.New("the answer is not about the instance: is endpoint Eureka's?"))
	}
	return got.Instance, nil
}

// post registers the instance with a status. Without a lastDirtyTimestamp the server takes its own time.
func (c call) post(status string, lastDirty json.Number) change {
	return func(ctx context.Context) error {
		body, err := c.body(status, lastDirty)
		if err == nil {
			_, err = c.send(ctx, http.MethodPost, c.app, body)
		}
		return elsewhere(err)
	}
}

func (c call) body(status string, lastDirty json.Number) ([]byte, error) {
	info := infoOf(c.in, c.opts, status)
	info.LastDirtyTimestamp = lastDirty
	body, err := json.Marshal(envelope{Instance: &info})
	if err != nil {
		return nil, fmt.Errorf("encoding the instance: %w", err)
	}
	return body, nil
}

// copy gives the other peers the entry that this one has taken: it keeps it in memory, and is not to be the only one that knows of it.
// The time is this peer's, so one that has a later entry keeps that.
func (c call) copy(ctx context.Context, got *instanceInfo) error {
	body, err := c.body(got.Status, got.LastDirtyTimestamp)
	if err == nil {
		c.repeat(ctx, http.MethodPost, c.app, nil, body)
	}
	return err
}

// copyOut is copy of an entry that is out of rotation: the call that took it out may have failed before it told the others. It gives
// them no status of an override, which nothing would undo there.
func (c call) copyOut(ctx context.Context, got *instanceInfo) error {
	out := *got
	out.Status = statusStarting
	return c.copy(ctx, &out)
}

// override sets the status that wins over the registered one.
func (c call) override(status string) change {
	return func(ctx context.Context) error { return c.setStatus(ctx, http.MethodPut, status) }
}

// clearOverride removes the override, and with it sets the status UP. If there is none, it changes nothing.
func (c call) clearOverride(ctx context.Context) error {
	return c.setStatus(ctx, http.MethodDelete, statusUp)
}

// setStatus changes the status at this peer, and then at the others.
func (c call) setStatus(ctx context.Context, method, status string) error {
	if _, err := c.send(ctx, method, c.path+"/status?value="+status, nil); err != nil {
		return gone(err)
	}
	c.repeat(ctx, method, c.path+"/status", url.Values{"value": {status}}, nil)
	return nil
}

// repeat makes a request that this peer has taken at the others that can be reached. Their answers don't count: the peers replicate
// it, too, but a moment later, and for 30 seconds only.
func (c call) repeat(ctx context.Context, method, path string, query url.Values, body []byte) {
	// About a tenth of the time for all of them, see [driverkit.Policy]: one that hangs must not use up what is needed to read back.
	c.tellOthers(ctx, 5, func(ctx context.Context, other driverkit.Server) { //nolint:mnd // see above
		_, _ = other.Do(ctx, driverkit.Request{Method: method, Path: path, Query: query, Header: c.replicated, Body: body})
	})
}

// tellOthers has tell ask each of the other peers that can be reached, all of them within this part of the time.
func (c call) tellOthers(ctx context.Context, part int, tell func(context.Context, driverkit.Server)) {
	ctx, cancel := driverkit.Share(ctx, part)
	defer cancel()
	_ = c.client.Try(ctx, driverkit.Policy{After: c.server}, func(ctx context.Context, other driverkit.Server) error {
		tell(ctx, other)
		return errNothing
	})
}

// renew renews the lease, whether or not it has ended, and reports whether there was one. If the peer may do so late, another one
// can be asked all the same: it is no more than a lease.
func (c call) renew(ctx context.Context, header http.Header) (bool, error) {
	_, err := c.sendAs(ctx, header, http.MethodPut, c.path, nil)
	if driverkit.HasStatus(err, http.StatusNotFound) {
		return false, nil
	}
	var late interface{ Timeout() bool }
	if ctx.Err() == nil && errors.As(err, &late) && late.Timeout() {
		err = driverkit.Away(err)
	}
	return err == nil, err
}

// isPosted reports whether the entry is what was posted, which has no tags, and not what was there before.
func (c call) isPosted(got *instanceInfo) bool {
	e, err := got.entry()
	e.Tags = c.in.Tags
	return err == nil && e.Equal(c.in) && e.ClusterUID == c.in.ClusterUID
}

// later is the next moment.
func later(timestamp json.Number) json.Number {
	ms, err := timestamp.Int64()
	if err != nil {
		return ""
	}
	return json.Number(strconv.FormatInt(ms+1, 10))
}

// serves makes sure that it was Eureka which answered that there is no entry, and not a proxy before it or a server
// that has it at another path.
func (p peer) serves(ctx context.Context) error {
	_, err := p.send(ctx, http.MethodHead, "/apps", nil)
	return elsewhere(err)
}

func (p peer) list(ctx context.Context, cluster string) ([]registry.Entry, error) {
	answer, err := p.send(ctx, http.MethodGet, "/apps", nil)
	if err != nil {
		return nil, elsewhere(err)
	}
	entries, err := entriesOf(answer.Body, cluster, &p.spellings)
	return entries, p.notEurekas(err)
}

// notEurekas returns an error with the peer whose answer was of no use. Another peer may be a Eureka.
func (p peer) notEurekas(err error) error {
	if err == nil {
		return nil
	}
	return driverkit.Away(fmt.Errorf("%s: %w", p.server, err))
}
