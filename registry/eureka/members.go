package eureka

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// replicas is the field of a server's status that lists its peers, without itself.
const replicas = "registered-replicas"

// UnlistedMembers implements [registry.MemberLister].
func (r *Registry) UnlistedMembers() []string { return r.members.Unlisted() }

// mostPeers bounds how many servers are asked for their peers.
const mostPeers = 16

// peers asks a server for its peers, itself included, and those of them that the endpoint lacks and that can be reached for theirs: they
// then get each change from this process too. What the server at a common address acknowledges it has in its memory alone for half a
// second, and when it dies it takes that along.
func (r *Registry) peers(ctx context.Context) (all []string, err error) {
	var from driverkit.Server
	var known []*url.URL
	err = r.client.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) (err error) {
		from = s
		known, err = r.replicas(ctx, s.Do)
		return err
	})
	if err != nil {
		return nil, err
	}
	others := len(known)
	if others < len(r.client.Servers()) { // each has an address
		r.members.Reach(nil, 0)
	} else {
		known = r.reach(ctx, known)
	}
	for _, at := range known {
		all = append(all, at.String())
	}
	if len(known) == others { // none of them has told which it is
		all = append(all, "the one that answers at "+from.String())
	}
	return all, nil
}

// reach asks peers for theirs, and returns all. One that was ever reached is told of changes for as long as it is listed: it may be about
// to start again.
func (r *Registry) reach(ctx context.Context, known []*url.URL) []*url.URL {
	others, before, left := len(known), r.members.Reached(), 0
	var reached []*url.URL
	for i := 0; i < len(known); i++ {
		at := known[i]
		if r.isInEndpoint(at) {
			continue
		}
		theirs, err := r.replicasAt(ctx, at, len(known)-i+1)
		switch {
		case err == nil:
		case has(before, at):
			theirs = before
		default:
			left++
			continue
		}
		reached = append(reached, at)
		for _, one := range theirs {
			if !has(known, one) && len(known) < mostPeers {
				known = append(known, one)
			}
		}
	}
	if len(known) == others { // the one that was asked first may be known by no other
		left++
	}
	r.members.Reach(reached, left)
	return known
}

// replicasAt asks a server that is not the endpoint's, within a part of the time. The credentials go to none with a scheme that is not the
// endpoint's.
func (r *Registry) replicasAt(ctx context.Context, at *url.URL, part int) ([]*url.URL, error) {
	if at.Scheme != r.client.Servers()[0].Scheme {
		return nil, fmt.Errorf("%s has another scheme than the endpoint", at)
	}
	ctx, cancel := driverkit.Share(ctx, part)
	defer cancel()
	return r.replicas(ctx, func(ctx context.Context, ask driverkit.Request) (*driverkit.Answer, error) {
		ask.At = at
		return r.client.Do(ctx, ask)
	})
}

func (r *Registry) isInEndpoint(at *url.URL) bool {
	return slices.ContainsFunc(r.client.Servers(), func(u *url.URL) bool { return strings.TrimRight(u.String(), "/") == at.String() })
}

func has(all []*url.URL, one *url.URL) bool {
	return slices.ContainsFunc(all, func(u *url.URL) bool { return *u == *one })
}

// replicas asks a server for its peers. It asks for XML, then for JSON: by default Eureka can't write its status as JSON, for
// which it reads a field that is null (StatusInfo.isHealthy), and a server may be built without XML.
func (r *Registry) replicas(
	ctx context.Context, do func(context.Context, driverkit.Request) (*driverkit.Answer, error),
) (others []*url.URL, err error) {
	for _, form := range []string{"application/xml", "application/json"} {
		header := r.header.Clone()
		header.Set("Accept", form)
		var answer *driverkit.Answer
		answer, err = do(ctx, driverkit.Request{Method: http.MethodGet, Path: "/status", Header: header, Limit: maxAnswer})
		switch {
		case err != nil:
			return nil, err
		case !answer.OK():
			err = driverkit.Away(answer.Refusal(string(answer.Body)))
			continue
		}
		var listed string
		if listed, err = replicasIn(answer.Body); err == nil {
			return r.without(strings.Split(listed, ",")), nil
		}
		err = driverkit.Away(fmt.Errorf("reading /status: %w", err))
	}
	return nil, err
}

// replicasIn finds the peers in a status, whatever form it has.
func replicasIn(body []byte) (string, error) {
	var status struct {
		Application map[string]string `json:"applicationStats"`
	}
	if json.Unmarshal(body, &status) == nil {
		if found, has := status.Application[replicas]; has {
			return found, nil
		}
	}
	named := false // by the text before, as in the entry of a map
	for decoder := xml.NewDecoder(bytes.NewReader(body)); ; {
		token, err := decoder.Token()
		if err != nil {
			return "", errors.New("the status has no " + replicas)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if named || token.Name.Local == replicas {
				var found string
				err := decoder.DecodeElement(&found, &token)
				return found, err
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(token)); text != "" {
				named = text == replicas
			}
		}
	}
}

// without are peers but for a server itself: Spring's default for a server that runs alone is a peer at localhost.
func (r *Registry) without(urls []string) (others []*url.URL) {
	loopback := slices.ContainsFunc(r.client.Servers(), func(u *url.URL) bool { return isLoopback(u.Hostname()) })
	for _, text := range urls {
		at, err := url.Parse(strings.TrimRight(strings.TrimSpace(text), "/"))
		if err != nil || at.Host == "" {
			continue
		}
		at.User = nil // its password is not for an Event
		if isLoopback(at.Hostname()) && (!loopback || r.isInEndpoint(at)) {
			continue
		}
		if !has(others, at) {
			others = append(others, at)
		}
	}
	return others
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
