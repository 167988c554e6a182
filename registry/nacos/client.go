package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// headerSecurityToken has the token of temporary credentials, in this spelling, which HTTP/1 does not care about.
	headerSecurityToken = "Spas-Securitytoken"
	// maxAnswer bounds the body of an answer if it is of one instance or service, and maxListing if it is of all:
	// some 400,000 instances, other people's included.
	maxAnswer  = 1 << 20
	maxListing = 256 << 20
)

// client sends calls to whichever of Nacos' addresses answers.
type client struct {
	*shared
	opts Options
}

// in is the same client with other options.
func (c *client) in(opts Options) *client { return &client{c.shared, opts} }

// shared is what calls have in common wherever they are about.
type shared struct {
	http    *driverkit.HTTPClient
	session *session   // nil without a user
	key     *accessKey // nil without one
	log     *slog.Logger
	// fixed is the API that the options name, nil for none.
	fixed *api
	// apis are what the servers were found to speak, by their URLs. A cluster is upgraded one by one.
	apis sync.Map
	// members are the servers, of which http may have fewer addresses.
	members *driverkit.Members
	// given, hosts and checkers are questions about whole services.
	given    driverkit.Shared[map[string]bool]
	hosts    driverkit.Shared[[]host]
	checkers driverkit.Shared[map[string]string]
	// unprobed are services that the servers do not probe.
	unprobed unprobed
	// silent are servers that did not answer, by their URLs, and when.
	silent sync.Map
}

// silentFor is how long no heartbeat is sent to a server that did not answer: each would wait, and all would be late.
const silentFor = 10 * time.Second

// note remembers whether a server has answered.
func (c *client) note(s driverkit.Server, err error) {
	if _, answered := errors.AsType[*answerError](err); err == nil || answered {
		c.silent.Delete(s.String())
		return
	}
	c.silent.Store(s.String(), time.Now())
}

func (c *client) isSilent(s driverkit.Server) bool {
	stored, _ := c.silent.Load(s.String())
	since, is := stored.(time.Time)
	return is && time.Since(since) < silentFor
}

// answer is a server's acknowledgement.
type answer struct {
	route route
	body  []byte
}

func newClient(http *driverkit.HTTPClient, opts Options, key *accessKey, log *slog.Logger) *client {
	c := &client{&shared{http: http, key: key, log: log}, opts}
	if opts.APIVersion != "" {
		c.fixed = apiOf(opts.APIVersion)
	}
	c.members = driverkit.NewMembers(http, c.listMembers)
	return c
}

// listMembers asks a server for all servers of its cluster.
func (c *client) listMembers(ctx context.Context) (all []string, err error) {
	a, err := c.do(ctx, call{do: listMembers})
	if err != nil {
		return nil, err
	}
	type member struct {
		Address string `json:"address"`
	}
	var list struct{ Data []member }
	if a.route.old { // it has an envelope of its own
		err = a.decode(&list)
	} else {
		err = a.decode(&list.Data)
	}
	for _, m := range list.Data {
		all = append(all, m.Address)
	}
	if err == nil && len(all) == 0 {
		err = errors.New("the answer has no servers")
	}
	return all, err
}

// do makes the call at the address that answered last. If that can't be reached or has trouble of its own, the call
// moves to the next within the same context. A change whose answer does not come does not: it may still be made there,
// when no caller expects it any more, so the error must be known.
func (c *client) do(ctx context.Context, call call) (*answer, error) {
	a, _, err := c.doAt(ctx, nil, call)
	return a, err
}

// doAt is [client.do] at this server alone, unless it is nil, and returns the server that was asked last.
func (c *client) doAt(ctx context.Context, only *driverkit.Server, call call) (a *answer, asked driverkit.Server, err error) {
	if only != nil {
		a, err = c.try(ctx, *only, call)
		return a, *only, err
	}
	err = c.http.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) (err error) {
		asked = s
		a, err = c.try(ctx, s, call)
		return err
	})
	return a, asked, err
}

// try makes the call at one server.
func (c *client) try(ctx context.Context, s driverkit.Server, call call) (*answer, error) {
	was, err := c.detect(ctx, s)
	if err != nil {
		return nil, err
	}
	a, err := c.authorized(ctx, s, was, call)
	if verdictOf(err) != noRoute || c.fixed != nil {
		return a, err
	}
	// The server there may be another than before: an upgrade while we ran.
	c.apis.CompareAndDelete(s.String(), was)
	is, detectErr := c.detect(ctx, s)
	if detectErr != nil {
		return nil, detectErr
	}
	if is.version == was.version {
		return nil, err
	}
	return c.authorized(ctx, s, is, call)
}

// detect returns the API of the server, and asks which it is only if that is not known: servers from 3.0 on have v3 and refuse
// most of the older ones; those before have v1, and v2 from 2.2 on.
func (c *client) detect(ctx context.Context, s driverkit.Server) (*api, error) {
	if c.fixed != nil {
		return c.fixed, nil
	}
	stored, _ := c.apis.Load(s.String())
	if known, is := stored.(*api); is {
		return known, nil
	}
	found := apiOf(version1)
	a, err := c.send(ctx, s, route{method: http.MethodGet, path: statePath}, nil, maxAnswer, "")
	switch {
	case err == nil && isState(a) || verdictOf(err) == refused:
		found = apiOf(version3)
	case err != nil && !isOtherPage(err):
		return nil, fmt.Errorf("finding out which API the server has: %w", err)
	}
	if _, others := c.apis.LoadOrStore(s.String(), found); !others {
		c.log.Info("Nacos API found", "server", s.String(), "version", found.version)
	}
	return found, nil
}

// isOtherPage holds for an answer that is not of a server with v3, but of one that is well.
func isOtherPage(err error) bool {
	e, is := errors.AsType[*driverkit.StatusError](err)
	return is && verdictOf(err) != elsewhere && (e.Status < 300 || driverkit.IsFinal(e.Status))
}

// isState holds for Nacos' own answer: the console and many a proxy answer everything.
func isState(a *answer) bool {
	var state struct {
		Version string `json:"version"`
	}
	return a.decode(&state) == nil && state.Version != ""
}

// authorized makes the call with a signature if we have an access key, or with a token if we have a user. One that the
// server does not take is renewed, once.
func (c *client) authorized(ctx context.Context, s driverkit.Server, api *api, call call) (*answer, error) {
	r := api.routes[call.do]
	form := call.parameters(r, c.opts)
	if c.session == nil {
		temporary := ""
		if c.key != nil {
			c.key.sign(form, c.opts.Group, call.service, time.Now())
			temporary = c.key.token
		}
		a, err := c.send(ctx, s, r, form, call.limit, temporary)
		switch {
		case verdictOf(err) == refused && c.key != nil:
			return nil, c.key.notAllowed(err)
		case verdictOf(err) == refused:
			return nil, noUser(err)
		}
		return a, err
	}
	login := func(ctx context.Context) (grant, error) { return c.login(ctx, s, api) }
	token, err := c.session.token(ctx, login)
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, s, r, form, call.limit, token)
	if verdictOf(err) != refused {
		return a, err
	}
	renewed, loginErr := c.session.renew(ctx, token, login)
	if loginErr != nil {
		return nil, loginErr
	}
	if renewed != token {
		a, err = c.send(ctx, s, r, form, call.limit, renewed)
	}
	if verdictOf(err) == refused {
		return nil, c.session.notAllowed(err)
	}
	return a, err
}

// login exchanges user and password for a token.
func (c *client) login(ctx context.Context, s driverkit.Server, api *api) (grant, error) {
	form := url.Values{"username": {c.session.username}, "password": {c.session.password}}
	a, err := c.send(ctx, s, route{method: http.MethodPost, path: api.login, old: true, safe: true}, form, maxAnswer, "")
	if err != nil {
		return grant{}, err
	}
	var g struct {
		AccessToken string `json:"accessToken"`
		TokenTTL    int64  `json:"tokenTtl"`
	}
	if err := a.decode(&g); err != nil {
		return grant{}, err
	}
	if g.AccessToken == "" {
		return grant{}, errors.New("the answer has no accessToken: does Nacos use another auth system than its own?")
	}
	return grant{token: g.AccessToken, lasts: time.Duration(g.TokenTTL) * time.Second}, nil
}

// send makes one request, and returns the answer if it is an acknowledgement.
func (c *client) send(
	ctx context.Context, s driverkit.Server, r route, form url.Values, limit int64, token string,
) (*answer, error) {
	request := driverkit.Request{
		Method: r.method, Path: r.path, Header: http.Header{}, Limit: max(limit, maxAnswer), Secrets: []string{token},
		Repeatable: r.changesNothing(),
	}
	switch r.method {
	case http.MethodGet, http.MethodDelete: // a body is ignored
		request.Query = form
	default: // in a body, since metadata can be longer than a server takes in a URL
		request.Body = []byte(form.Encode())
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
	}
	switch {
	case token == "":
	case c.key != nil:
		request.Header.Set(headerSecurityToken, token)
	default:
		request.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := s.Do(ctx, request)
	if err != nil {
		return nil, err
	}
	return taken(r, got)
}

// taken returns the answer if it is an acknowledgement. To what changes nothing, another server may give a better one than a page.
func taken(r route, got *driverkit.Answer) (*answer, error) {
	a := &answer{route: r, body: got.Body}
	page := r.changesNothing() && got.OK() && !json.Valid(got.Body)
	if got.OK() && a.isSuccess() && !page {
		return a, nil
	}
	err := newAnswerError(got)
	if page || r.changesNothing() && verdictOf(err) == elsewhere {
		err = driverkit.Away(err)
	}
	return nil, err
}

// isSuccess holds for the code of a success, and if there is none.
func (a *answer) isSuccess() bool {
	if a.route.old {
		return true
	}
	var e envelope
	return json.Unmarshal(a.body, &e) == nil && e.Code != nil && *e.Code == 0
}
