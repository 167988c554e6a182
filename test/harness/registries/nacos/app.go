package nacos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// appTimeout bounds what an application does, on a machine that runs many of them.
const appTimeout = time.Minute

// renewals is the key of an application's metadata that counts how often it has registered itself.
const renewals = "renewals"

// App is an application that registers itself over gRPC by Nacos' own client.
type App struct {
	server   *Server
	at       registry.Instance
	client   *Reader
	renewals int
}

// RegisterItself runs an application until Leave or the end of the context, and returns when readers see its entry.
func (s *Server) RegisterItself(ctx context.Context, at registry.Instance) (*App, error) {
	client, err := s.runReader(ctx, "-service", at.Service, "-register", at.Endpoint())
	if err != nil {
		return nil, err
	}
	a := &App{server: s, at: at, client: client}
	if err := a.seen(ctx); err != nil {
		client.Stop()
		return nil, err
	}
	return a, nil
}

// Renew has the application register all that it has registered once more, and returns when readers see that.
func (a *App) Renew(ctx context.Context) error {
	a.renewals++
	if _, err := io.WriteString(a.client.In, "again\n"); err != nil {
		return fmt.Errorf("telling the application to register again: %w", err)
	}
	return a.seen(ctx)
}

// Leave has the application deregister and end, and returns when readers know of that.
func (a *App) Leave(ctx context.Context) error {
	_ = a.client.In.Close()
	<-a.client.Ended
	if a.client.Err != nil {
		return fmt.Errorf("the application: %w", a.client.Err)
	}
	return a.await(ctx, "")
}

func (a *App) seen(ctx context.Context) error {
	return a.await(ctx, strconv.Itoa(a.renewals))
}

// await waits until readers see the application's entry with so many renewals, "" for no such entry. Rollcall's may stand
// beside it.
func (a *App) await(ctx context.Context, want string) error {
	const glance = 50 * time.Millisecond
	return wait.Until(ctx, appTimeout, glance, func(ctx context.Context) error {
		entry, given, err := a.server.Entry(ctx, a.at)
		if err != nil {
			return err
		}
		if entry != nil {
			given = append(given, *entry)
		}
		got := ""
		for _, each := range given {
			got = cmp.Or(got, each.Metadata[renewals])
		}
		if got != want {
			return fmt.Errorf("the server has %+v of the application", given)
		}
		return nil
	})
}

// Entry returns what the server says of an instance, nil where there is none, and what of it clients are given who look its
// service up.
func (s *Server) Entry(ctx context.Context, at registry.Instance) (entry *Seen, given []Seen, err error) {
	token, err := s.Login(ctx, Admin, s.opts.Password)
	if err != nil {
		return nil, nil, err
	}
	form := url.Values{
		"serviceName": {at.Service}, "groupName": {"DEFAULT_GROUP"}, "clusterName": {"DEFAULT"},
		"ip": {at.Address}, "port": {strconv.Itoa(at.Port)},
	}
	path := strings.TrimSuffix(s.listPath(), "/list")
	if s.opts.Version == V3 {
		path = "/v3/admin/ns/instance"
	}
	body, err := s.Do(ctx, http.MethodGet, path, form, token)
	if registries.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	entry = &Seen{}
	if err := unwrapped(body, entry); err != nil {
		return nil, nil, err
	}
	body, err = s.Do(ctx, http.MethodGet, s.listPath(), url.Values{"serviceName": {at.Service}, "groupName": {"DEFAULT_GROUP"}}, token)
	if err != nil {
		return nil, nil, err
	}
	var all []Seen
	if s.opts.Version == V3 {
		err = unwrapped(body, &all)
	} else {
		var listed struct{ Hosts []Seen }
		err = json.Unmarshal(body, &listed)
		all = listed.Hosts
	}
	return entry, slices.DeleteFunc(all, func(each Seen) bool { return each.IP != at.Address || each.Port != at.Port }), err
}

// unwrapped reads an answer of version 3, which has an envelope, or of version 1, which has none.
func unwrapped(body []byte, into any) error {
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	if envelope.Data != nil {
		body = envelope.Data
	}
	return json.Unmarshal(body, into)
}
