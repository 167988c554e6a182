package consul

import (
	"cmp"
	"context"
	"errors"
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

const (
	// maintenancePrefix begins the ID of the check that an agent adds to a service in maintenance.
	maintenancePrefix   = "_service_maintenance:"
	maintenanceReason   = "Rollcall has taken the pod out of rotation"
	longestWait         = 10 * time.Second // a question to the catalog waits for a change no longer than that
	shortestWait        = 200 * time.Millisecond
	agentServicePath    = "/v1/agent/service/maintenance/"
	healthOfServicePath = "/v1/health/service/"
	servicesPath        = "/v1/catalog/services"
	maxOtherNames       = 3 // are reported
)

// newAgents makes the client of all agents; the catalog has their addresses.
func newAgents(cfg registry.Config, opts Options, credentials driverkit.Credentials) (*driverkit.HTTPClient, error) {
	cfg.Endpoint = opts.agentOf("node", "192.0.2.1")
	if !strings.HasPrefix(cfg.Endpoint, "https://") {
		cfg.TLS = registry.TLS{}
	}
	return driverkit.NewHTTPClient(cfg, driverkit.HTTPOptions{
		Name: "Consul's agent", NameServers: true, ServerName: opts.AgentServerName, Credentials: credentials,
	})
}

// AppEntries implements [registry.AppEntrySteerer] by the maintenance mode of the application's service. It is the agent's
// that owns the service, and so is asked for there: what anybody writes of it into the catalog, the agent undoes.
func (r *Registry) AppEntries() registry.AppRegistry { return appEntries{r} }

// appEntries is not the driver itself: it lists nothing and takes no batches.
type appEntries struct{ driver *Registry }

// Register ends the maintenance, also one that another began.
func (a appEntries) Register(ctx context.Context, in registry.Instance) error {
	return a.change(ctx, "putting back the application's entry of", in, a.driver.putAppBack)
}

// FailOver begins a maintenance.
func (a appEntries) FailOver(ctx context.Context, in registry.Instance) error {
	return a.change(ctx, "taking out the application's entry of", in, a.driver.takeAppOut)
}

// Deregister has nothing to remove once the service has gone: its checks went with it.
func (a appEntries) Deregister(ctx context.Context, in registry.Instance) error {
	return a.FailOver(ctx, in)
}

// Get reads the catalog consistently.
func (a appEntries) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = a.change(ctx, "asking for the application's entry of", in,
		func(ctx context.Context, in registry.Instance) error {
			services, err := a.driver.steered(ctx, in)
			state = stateOf(services)
			return err
		})
	return state, err
}

// change makes a call for an instance. What Consul takes of its metadata does not matter: none is written.
func (a appEntries) change(
	ctx context.Context, doing string, in registry.Instance, call func(context.Context, registry.Instance) error,
) error {
	err := driverkit.CheckInstance(in)
	if err == nil {
		err = call(ctx, in)
	}
	return driverkit.CallError(ctx, doing, in, err)
}

// appService is one that an application has registered, as clients read it.
type appService struct {
	Node struct {
		Node, Address string
		Meta          map[string]string
	}
	Service struct {
		ID, Service, Address string
		Port                 int
		Meta                 map[string]string
	}
	Checks []check
}

func (s appService) String() string { return fmt.Sprintf("%q on node %s", s.Service.ID, s.Node.Node) }

// isAgentless reports whether Consul on Kubernetes has written the service itself, under a node on which no agent runs: since its version
// 1.0, services of the mesh have none.
func (s appService) isAgentless() bool {
	return s.Service.Meta["managed-by"] == "consul-k8s-endpoints-controller" || s.Node.Meta[metaSynthetic] == "true"
}

func (s appService) inMaintenance() bool {
	for _, c := range s.Checks {
		if c.CheckID == maintenancePrefix+s.Service.ID {
			return true
		}
	}
	return false
}

// failing is a check for which clients are not given the service, nil for none.
func (s appService) failing() *check {
	for i, c := range s.Checks {
		if c.Status == statusCritical {
			return &s.Checks[i]
		}
	}
	return nil
}

func stateOf(services []appService) registry.State {
	state := registry.Absent
	for _, s := range services {
		if s.failing() == nil {
			return registry.InService
		}
		state = registry.OutOfService
	}
	return state
}

func (r *Registry) putAppBack(ctx context.Context, in registry.Instance) error {
	services, err := r.maintain(ctx, in, false)
	switch {
	case err != nil:
		return err
	case len(services) == 0:
		return r.notThere(ctx, in)
	case stateOf(services) == registry.InService:
		return several(services)
	}
	var said []string
	for _, s := range services {
		said = append(said, fmt.Sprintf("check %q of %q on node %s is critical", s.failing().Name, s.Service.ID, s.Node.Node))
	}
	return registry.NotRegistered(fmt.Errorf("the application is not up: %s", strings.Join(said, ", ")))
}

func (r *Registry) takeAppOut(ctx context.Context, in registry.Instance) error {
	services, err := r.maintain(ctx, in, true)
	if err != nil {
		return err
	}
	return several(services)
}

// several returns an error that lists the services at one endpoint, if they are more than one.
func several(services []appService) error {
	if len(services) <= 1 {
		return nil
	}
	var ids []string
	for _, s := range services {
		ids = append(ids, s.String())
	}
	return registry.SeveralEntries(fmt.Errorf("%d services of that name have the address and port: %s", len(ids), strings.Join(ids, ", ")))
}

// notThere returns an error with what was looked for, and the other names under which the catalog has it, if these could be read.
func (r *Registry) notThere(ctx context.Context, in registry.Instance) error {
	err := registry.NotRegistered(fmt.Errorf("no service %s in the catalog has the address %s and port %d", in.Service, in.Address, in.Port))
	names, _ := r.namesAt(ctx, in)
	return registry.OtherNames(err, names[:min(len(names), maxOtherNames)]...)
}

// maintain tells the agents to begin or end the maintenance of the application's services, and returns those that are there once the
// catalog shows that: an agent tells it a moment later. One question is about the service: it costs a server more the more instances there
// are. The others are about a node.
func (r *Registry) maintain(ctx context.Context, in registry.Instance, begin bool) ([]appService, error) {
	services, err := r.steered(ctx, in)
	if err != nil {
		return nil, err
	}
	failed := r.askAgents(ctx, services, begin)
	switch {
	case failed != nil && (begin || stateOf(services) != registry.InService):
		return nil, failed
	case failed != nil:
		return services, nil //nolint:nilerr // what clients are given decides, as for Get
	}
	var shown []appService
	for _, s := range services {
		there := true
		if s.inMaintenance() != begin {
			if s.Checks, there, err = r.shown(ctx, s, begin); err != nil {
				return nil, err
			}
		}
		if there {
			shown = append(shown, s)
		}
	}
	return shown, nil
}

// askAgents asks the agents of the services that are not as they should be, and returns the first failure: it may be of a dead node whose
// pod had the address before.
func (r *Registry) askAgents(ctx context.Context, services []appService, begin bool) (failed error) {
	for _, s := range services {
		if s.inMaintenance() != begin {
			failed = cmp.Or(failed, r.askAgent(ctx, s, begin))
		}
	}
	return failed
}

// shown waits until the catalog shows a service in maintenance or not, and returns its checks then, or that it has gone.
func (r *Registry) shown(ctx context.Context, s appService, begin bool) (checks []check, there bool, err error) {
	for index := ""; ; {
		var header http.Header
		if s.Checks, header, err = r.checksOf(ctx, s.Node.Node, s.Service.ID, index); err != nil {
			return nil, false, err
		}
		// Without a check of its own, it may have gone, or the token may not see it any more.
		if !slices.ContainsFunc(s.Checks, func(c check) bool { return c.ServiceID == s.Service.ID }) {
			if there, err := r.isThere(ctx, s); err != nil || !there {
				return nil, false, err
			}
		}
		switch {
		case s.inMaintenance() == begin:
			return s.Checks, true, nil
		case waitIn(ctx) < shortestWait:
			return nil, false, noOutage(fmt.Errorf("the agent has accepted the change, but the catalog does not show it yet: %s: %w",
				s, context.DeadlineExceeded)) // it may do so later
		}
		index = header.Get("X-Consul-Index")
	}
}

// isThere reports whether a node has the service. A transaction tells what is hidden from what is not there.
func (r *Registry) isThere(ctx context.Context, s appService) (bool, error) {
	of := service{ID: s.Service.ID, Namespace: r.opts.Namespace, Partition: r.opts.Partition}
	ops := []operation{{Service: &serviceOperation{Verb: get, Node: s.Node.Node, Service: of}}}
	made, err := r.transact(ctx, ops)
	switch {
	case err != nil:
		return false, err
	case len(made.Errors) > 0:
		_, err := r.absent(ops, made.Errors)
		return false, err
	}
	_, _, err = results(ops, made)
	return err == nil, err
}

// waitIn is how long a question may wait for a change and still be answered while the context lasts: a server adds up to a
// sixteenth. One without an answer looks as if the server were away.
func waitIn(ctx context.Context) time.Duration {
	deadline, is := ctx.Deadline()
	if !is {
		return longestWait
	}
	return min(longestWait, time.Until(deadline)*3/4) //nolint:mnd // three quarters
}

// steered is [Registry.applications] for services that are taken out and put back: what the token may not see is not gone.
func (r *Registry) steered(ctx context.Context, in registry.Instance) ([]appService, error) {
	services, header, err := r.applications(ctx, in)
	switch {
	case err != nil || len(services) > 0:
	case header.Get(filteredByACLs) == "true":
		err = notAllowed(errors.New("the token may not read the application's node or service"))
	case r.mayHide(header):
		err = r.lacksToken(ctx)
	}
	return services, err
}

// lacksToken returns an error if Consul hides services from those without a token, which it does not report: not if ACLs are off,
// nor if an agent has a token for those who send none.
func (r *Registry) lacksToken(ctx context.Context) error {
	answer, err := r.ownToken(ctx)
	if err == nil && answer.Status == http.StatusForbidden {
		// A server that has just become the leader may not know the agent's token yet; see [Registry.isForbiddenInEarnest].
		if _, err = r.transact(ctx, []operation{nodeOp(get, r.nodes[0])}); err == nil {
			answer, err = r.ownToken(ctx)
		}
	}
	switch {
	case err != nil:
		return err
	case answer.OK(), answer.Status == http.StatusUnauthorized: // "ACL support disabled"
		return nil
	case answer.Status == http.StatusForbidden, answer.Status == http.StatusNotFound:
		return notAllowed(errors.New("is missing: Consul may hide the application's node and service from requests without a token"))
	}
	return r.refusal(ctx, answer)
}

func (r *Registry) ownToken(ctx context.Context) (*driverkit.Answer, error) {
	return r.send(ctx, driverkit.Request{Method: http.MethodGet, Path: "/v1/acl/token/self", Query: url.Values{}})
}

// askAgent begins or ends the maintenance of a service, at the agent that owns it. An agent that is away or fails is not an outage
// of the registry, whose catalog has just answered.
func (r *Registry) askAgent(ctx context.Context, s appService, begin bool) error {
	if s.isAgentless() {
		return registry.OfAgent(registry.Terminal(fmt.Errorf("%s has no agent that could steer it: this is how Consul on Kubernetes "+
			"(connect-inject) registers pods; use the driver endpointslice, since Consul on Kubernetes follows the pod's readiness", s)))
	}
	agent, err := url.Parse(r.opts.agentOf(s.Node.Node, s.Node.Address))
	if err != nil {
		return registry.Terminal(registry.FieldError("options.agentEndpoint", err))
	}
	query := url.Values{"enable": {strconv.FormatBool(begin)}, "reason": {maintenanceReason}}
	r.place(query, "ns", r.opts.Namespace)
	header, token, err := r.authorized(ctx)
	if err != nil {
		return err
	}
	half, cancel := driverkit.Share(ctx, 2) // a node that is gone does not answer at all: the other half is left to report that
	defer cancel()
	answer, err := r.agents.Do(half, driverkit.Request{
		At: agent, Method: http.MethodPut, Path: agentServicePath + url.PathEscape(s.Service.ID), Query: query,
		Header: header, Secrets: []string{token}, Check: driverkit.CheckNoPage,
	})
	of := fmt.Sprintf("the agent of node %s, which owns %q,", s.Node.Node, s.Service.ID)
	switch {
	case err != nil:
		return noOutage(fmt.Errorf("%s can't be reached: %w", of,
			expiredError("options.agentEndpoint", wrongNameError("options.agentServerName", err))))
	case answer.OK():
		return nil
	}
	err = answer.Refusal(string(answer.Body)).Classified()
	switch {
	case isForbidden(answer.Status) && r.session.method != "" && strings.Contains(string(answer.Body), unknownToken):
		return noOutage(fmt.Errorf("%s does not know the token of the last login yet: %w", of, err)) // and remembers that for acl_token_ttl
	case isForbidden(answer.Status):
		return registry.OfAgent(notAllowed(fmt.Errorf("%s refuses the token: %w", of, err)))
	case answer.Status == http.StatusNotFound: // it passes: the catalog follows the agent
		return noOutage(errors.New(of + " does not know it; check that options.agentEndpoint leads to the agent of each node: " + err.Error()))
	case registry.CodeOf(err) == registry.CodeTerminal: // it redirects, or a port for TLS is asked without, say
		err = registry.FieldError("options.agentEndpoint", err)
	}
	return noOutage(fmt.Errorf("%s answers: %w", of, err))
}

// noOutage turns a retryable error into one that leaves it to the caller when to retry, which is an answer.
func noOutage(err error) error {
	err = registry.OfAgent(err)
	if _, told := registry.RetryAfterOf(err); told || registry.CodeOf(err) == registry.CodeTerminal {
		return err
	}
	return registry.RetryAfter(err, 0)
}
