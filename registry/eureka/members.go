package eureka

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
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

// peers asks a server for its peers, itself included. It asks for XML, then for JSON: by default Eureka can't write its status as JSON, for
// which it reads a field that is null (StatusInfo.isHealthy), and a server may be built without XML.
func (r *Registry) peers(ctx context.Context) (all []string, err error) {
	err = r.client.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
		for _, form := range []string{"application/xml", "application/json"} {
			header := r.header.Clone()
			header.Set("Accept", form)
			var answer *driverkit.Answer
			answer, err = s.Do(ctx, driverkit.Request{Method: http.MethodGet, Path: "/status", Header: header, Limit: maxAnswer})
			switch {
			case err != nil:
				return err
			case !answer.OK():
				err = driverkit.Away(answer.Refusal(string(answer.Body)))
				continue
			}
			var others string
			if others, err = replicasIn(answer.Body); err == nil {
				all = append(r.without(strings.Split(others, ",")), "the one that answers at "+s.String())
				return nil
			}
			err = driverkit.Away(fmt.Errorf("%s: %w", s, err))
		}
		return err
	})
	return all, err
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
func (r *Registry) without(urls []string) (others []string) {
	own := map[string]bool{}
	loopback := false
	for _, server := range r.client.Servers() {
		own[strings.TrimRight(server.String(), "/")] = true
		loopback = loopback || isLoopback(server.Hostname())
	}
	seen := map[string]bool{}
	for _, text := range urls {
		text = strings.TrimRight(strings.TrimSpace(text), "/")
		at, err := url.Parse(text)
		if err != nil || text == "" || isLoopback(at.Hostname()) && (!loopback || own[text]) {
			continue
		}
		at.User = nil // its password is not for an Event
		seen[at.String()] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
