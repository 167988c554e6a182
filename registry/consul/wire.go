package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// maxAnswer bounds the body of an answer, in bytes: some 50,000 services.
	maxAnswer = 64 << 20

	statusPassing  = "passing"
	statusCritical = "critical"
)

// What Consul's HTTP API sends and takes, as far as it is used here. The names in JSON are the fields'.
//
//nolint:tagliatelle // the names are Consul's
type (
	node struct {
		ID, Node, Address, Datacenter string
		Partition                     string `json:",omitempty"`
		Meta                          map[string]string
		ModifyIndex                   uint64
	}

	service struct {
		ID, Service, Address string
		Port                 int
		Tags                 []string
		Meta                 map[string]string
		Weights              weights
		TaggedAddresses      map[string]serviceAddress `json:",omitempty"`
		Namespace            string                    `json:",omitempty"`
		Partition            string                    `json:",omitempty"`
		ModifyIndex          uint64
	}

	weights struct{ Passing, Warning int }

	serviceAddress struct {
		Address string
		Port    int
	}

	check struct {
		Node, CheckID, Name, Status, Notes, Output, ServiceID, ServiceName string

		Namespace string `json:",omitempty"`
		Partition string `json:",omitempty"`
	}
)

// verb is what an operation does with what it has.
type verb string

const (
	get       verb = "get"
	set       verb = "set"
	cas       verb = "cas" // a set on the condition that the ModifyIndex is still this one
	deleteCAS verb = "delete-cas"
)

// operation is one of a transaction, about one of the three.
//
//nolint:tagliatelle // the names are Consul's
type operation struct {
	Node    *nodeOperation    `json:",omitempty"`
	Service *serviceOperation `json:",omitempty"`
	Check   *checkOperation   `json:",omitempty"`
}

type nodeOperation struct {
	Verb verb
	Node node
}

type serviceOperation struct {
	Verb    verb
	Node    string
	Service service
}

type checkOperation struct {
	Verb  verb
	Check check
}

// outcome is the answer to a transaction: it was made, and has a result for each operation that reads or sets, or it was
// rolled back because of the errors.
type outcome struct {
	Results []struct {
		Node    *node
		Service *service
		Check   *check
	}
	Errors []operationError
}

type operationError struct {
	OpIndex int
	What    string
}

// filteredByACLs is the header that shows whether the token can't see all of the answer.
const filteredByACLs = "X-Consul-Results-Filtered-By-Acls"

// read makes a request that reads, consistently. If whole is set, the answer must be Consul's and have all there is: it is
// an error if the token can't see some of it.
func (r *Registry) read(ctx context.Context, path string, query url.Values, whole bool, into any) (http.Header, error) {
	r.place(query, "ns", r.opts.Namespace)
	r.place(query, "partition", r.opts.Partition)
	answer, err := r.send(ctx, driverkit.Request{Method: http.MethodGet, Path: path, Query: query, Check: func(a *driverkit.Answer) error {
		if whole && a.Header.Get("X-Consul-Knownleader") != "true" {
			return errors.New("the answer is not from a Consul server that knows its leader")
		}
		return decode(a, into)
	}})
	switch {
	case err != nil:
		return nil, err
	case answer.Status != http.StatusOK:
		return nil, r.refusal(ctx, answer)
	case whole && answer.Header.Get(filteredByACLs) == "true":
		return nil, notAllowed(errors.New("the token may not read all of Rollcall's nodes and their services"))
	}
	return answer.Header, nil
}

// transact makes one transaction. Without an error it was made, or rolled back because of the errors in it. Namespace and
// partition are in its operations.
func (r *Registry) transact(ctx context.Context, operations []operation) (*outcome, error) {
	var made outcome
	answer, err := r.sendTransaction(ctx, operations, &made)
	switch {
	case err != nil:
		return nil, err
	case answer.Status == http.StatusOK:
		return &made, nil
	case answer.Status != http.StatusConflict:
		return nil, r.refusal(ctx, answer)
	}
	if err := decode(answer, &made); err != nil {
		return nil, err
	}
	if len(made.Errors) == 0 {
		return nil, errors.New("the transaction was rolled back, and Consul gave no reason")
	}
	return &made, nil
}

func (r *Registry) sendTransaction(ctx context.Context, operations []operation, made *outcome) (*driverkit.Answer, error) {
	body, err := json.Marshal(operations) //nolint:musttag // the names are the fields'
	if err != nil {
		return nil, fmt.Errorf("encoding the transaction: %w", err)
	}
	return r.send(ctx, driverkit.Request{
		Method: http.MethodPut, Path: "/v1/txn", Query: url.Values{}, Body: body,
		Check: func(a *driverkit.Answer) error { return decode(a, made) },
	})
}

func (r *Registry) send(ctx context.Context, request driverkit.Request) (*driverkit.Answer, error) {
	header, token, err := r.authorized(ctx)
	if err != nil {
		return nil, err
	}
	request.Header, request.Limit, request.Secrets = header, maxAnswer, []string{token}
	request.Query.Set("consistent", "")
	r.place(request.Query, "dc", r.opts.Datacenter)
	answer, err := r.client.Do(ctx, request)
	if err == nil && isForbidden(answer.Status) && strings.Contains(string(answer.Body), unknownToken) {
		r.session.refuse(token)
	}
	return answer, wrongNameError("options.serverName", err)
}

// place adds the place of a request, if an option sets one.
func (r *Registry) place(query url.Values, key, value string) {
	if value != "" {
		query.Set(key, value)
	}
}

func decode(answer *driverkit.Answer, into any) error {
	if err := json.Unmarshal(answer.Body, into); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	return nil
}

// quote writes a string as Consul's filters read it: with Go's escapes, but with no quotation mark between the two.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\x5c`, `"`, `\x22`, "\n", `\n`).Replace(text) + `"`
}
