package nacos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// client sends calls to whichever of Nacos' addresses answers.
type client struct {
	http    *http.Client
	opts    Options
	nodes   []*node // in the order of the endpoint
	session *session
	// good is the index of the node that answered last.
	good atomic.Int32
}

// node is one address.
type node struct {
	base *url.URL
	// api is what the server there speaks; nil is not known. It is of the node, since a cluster is upgraded one by one.
	api atomic.Pointer[api]
}

// answer is a server's acknowledgement.
type answer struct {
	route route
	body  []byte
}

func newClient(http *http.Client, opts Options, urls []*url.URL, session *session) *client {
	c := &client{http: http, opts: opts, session: session}
	for _, u := range urls {
		if u.Path == "" {
			u = u.JoinPath("/nacos")
		}
		n := &node{base: u}
		if opts.APIVersion != "" {
			n.api.Store(apiOf(opts.APIVersion))
		}
		c.nodes = append(c.nodes, n)
	}
	return c
}

// do makes the call at the address that answered last. Where that can't be reached or has trouble of its own, the call
// goes on to the next within the same context, each address once. A change whose answer does not come does not: it may
// still be made there, when nobody expects it any more, so the error must be known.
func (c *client) do(ctx context.Context, call call) (*answer, error) {
	first := int(c.good.Load())
	var errs []error
	for i := range c.nodes {
		index := (first + i) % len(c.nodes)
		n := c.nodes[index]
		a, err := c.try(ctx, visit{node: n, left: len(c.nodes) - i}, call)
		if verdictOf(err) != elsewhere {
			c.use(index)
			return a, c.at(n, err)
		}
		errs = append(errs, c.at(n, err))
		if ctx.Err() != nil || isPending(err) {
			c.use((index + 1) % len(c.nodes))
			break
		}
	}
	return nil, joined(errs)
}

// joined is errors.Join in one line.
func joined(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w; %w", all, err)
	}
	return all
}

func (c *client) use(index int) { c.good.Store(int32(index)) } //nolint:gosec // a handful of addresses

// at names the address where there are several.
func (c *client) at(n *node, err error) error {
	if err == nil || len(c.nodes) == 1 {
		return err
	}
	return fmt.Errorf("%s: %w", n.base.Host, err)
}

// visit is a call's time at one node. So many are left, with this one.
type visit struct {
	node *node
	left int
}

// bounded gives a request that changes nothing its share of the time that the nodes which are left have together.
func (v visit) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, is := ctx.Deadline()
	if !is || v.left == 1 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(v.left))
}

// try makes the call at one node.
func (c *client) try(ctx context.Context, v visit, call call) (*answer, error) {
	was, err := c.detect(ctx, v)
	if err != nil {
		return nil, err
	}
	a, err := c.authorized(ctx, v, was, call)
	if verdictOf(err) != noRoute || c.opts.APIVersion != "" {
		return a, err
	}
	// The server there may be another than before: an upgrade while we ran.
	v.node.api.CompareAndSwap(was, nil)
	is, detectErr := c.detect(ctx, v)
	if detectErr != nil {
		return nil, detectErr
	}
	if is.version == was.version {
		return nil, err
	}
	return c.authorized(ctx, v, is, call)
}

// detect returns the node's API, and asks which it is only where that is not known: servers from 3.0 on have v3 and refuse
// most of the older ones; those before have v1, and v2 from 2.2 on.
func (c *client) detect(ctx context.Context, v visit) (*api, error) {
	if known := v.node.api.Load(); known != nil {
		return known, nil
	}
	found := apiOf(version1)
	a, err := c.send(ctx, v, route{method: http.MethodGet, path: statePath}, nil, maxAnswer, "")
	switch {
	case err == nil && isState(a) || verdictOf(err) == refused:
		found = apiOf(version3)
	case err != nil && !isOtherPage(err):
		return nil, fmt.Errorf("finding out which API the server has: %w", err)
	}
	v.node.api.CompareAndSwap(nil, found)
	return found, nil
}

// isOtherPage holds for an answer that is not of a server with v3, but of one that is well.
func isOtherPage(err error) bool {
	e, ok := errors.AsType[*answerError](err)
	return ok && e.status != 0 && e.verdict != elsewhere && (e.status < 300 || isTerminal(e.status))
}

// isState holds for Nacos' own answer: the console and many a proxy answer everything.
func isState(a *answer) bool {
	var state struct {
		Version string `json:"version"`
	}
	return a.decode(&state) == nil && state.Version != ""
}

// authorized makes the call with a token where we have a user. One that the server does not take is renewed, once.
func (c *client) authorized(ctx context.Context, v visit, api *api, call call) (*answer, error) {
	r := api.routes[call.do]
	form := call.parameters(r, c.opts)
	if c.session == nil {
		a, err := c.send(ctx, v, r, form, call.limit, "")
		if verdictOf(err) == refused {
			return nil, noUser(err)
		}
		return a, err
	}
	login := func(ctx context.Context) (grant, error) { return c.login(ctx, v, api) }
	token, err := c.session.token(ctx, login)
	if err != nil {
		return nil, err
	}
	a, err := c.send(ctx, v, r, form, call.limit, token)
	if verdictOf(err) != refused {
		return a, err
	}
	renewed, loginErr := c.session.renew(ctx, token, login)
	if loginErr != nil {
		return nil, loginErr
	}
	if renewed != token {
		a, err = c.send(ctx, v, r, form, call.limit, renewed)
	}
	if verdictOf(err) == refused {
		return nil, c.session.notAllowed(err)
	}
	return a, err
}

// login exchanges user and password for a token.
func (c *client) login(ctx context.Context, v visit, api *api) (grant, error) {
	form := url.Values{"username": {c.session.username}, "password": {c.session.password}}
	a, err := c.send(ctx, v, route{method: http.MethodPost, path: api.login, old: true, safe: true}, form, maxAnswer, "")
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
	ctx context.Context, v visit, r route, form url.Values, limit int64, token string,
) (*answer, error) {
	safe := r.safe || r.method == http.MethodGet
	if safe {
		var cancel context.CancelFunc
		ctx, cancel = v.bounded(ctx)
		defer cancel()
	}
	req, err := newRequest(ctx, v.node.base.JoinPath(r.path), r.method, form)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, newSilence(err, !safe)
	}
	defer resp.Body.Close()
	body, err := readBounded(resp.Body, max(limit, maxAnswer))
	if err != nil {
		return nil, newSilence(err, !safe)
	}
	a := &answer{route: r, body: body}
	if resp.StatusCode < 200 || resp.StatusCode > 299 || !a.isSuccess() {
		return nil, newAnswerError(resp, body, token, c.session.secret())
	}
	return a, nil
}

// newRequest puts the parameters of a change into a body, since metadata can be longer than a server takes in a URL.
func newRequest(ctx context.Context, u *url.URL, method string, form url.Values) (*http.Request, error) {
	var body string
	switch method {
	case http.MethodGet, http.MethodDelete: // a body is not looked at
		u.RawQuery = form.Encode()
	default:
		body = form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "rollcall")
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
	}
	return req, nil
}

// isSuccess holds for the code that says so, and where there is none.
func (a *answer) isSuccess() bool {
	if a.route.old {
		return true
	}
	var e envelope
	return json.Unmarshal(a.body, &e) == nil && e.Code != nil && *e.Code == 0
}
