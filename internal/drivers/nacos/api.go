package nacos

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
)

const (
	version1 = "v1"
	version2 = "v2"
	version3 = "v3"

	// statePath is answered by servers from 3.0 on, and to anybody.
	statePath = "/v3/admin/core/state"
	// onePage is more services than a server has: what is asked for in one page changes in no order between pages.
	onePage = 1_000_000
)

// operation is what can be asked of a server, whatever version its API has.
type operation int

const (
	readInstance operation = iota
	addInstance
	setInstance
	removeInstance
	beatInstance
	readService
	addService
	setChecker
	listAll
)

// route is where an operation is in one version of the API.
type route struct {
	method, path string
	// old is v1's style: the service's name has its group before it, as in G@@name, and the answer is bare. In the new one
	// the group is a parameter of its own, and the answer stands in an envelope.
	old bool
}

// api is one version of Nacos' HTTP API.
type api struct {
	version string
	login   string
	routes  map[operation]route
}

// apiOf returns the version's API. The sources are the documents (https://nacos.io/docs/v2.5/manual/user/open-api and
// https://nacos.io/docs/v3.0/manual/admin/admin-api) and, for what they leave out, the controllers in nacos-naming.
func apiOf(version string) *api {
	switch version {
	case version1:
		return &api{version: version, login: "/v1/auth/login", routes: map[operation]route{
			readInstance:   {http.MethodGet, "/v1/ns/instance", true},
			addInstance:    {http.MethodPost, "/v1/ns/instance", true},
			setInstance:    {http.MethodPut, "/v1/ns/instance", true},
			removeInstance: {http.MethodDelete, "/v1/ns/instance", true},
			beatInstance:   {http.MethodPut, "/v1/ns/instance/beat", true},
			readService:    {http.MethodGet, "/v1/ns/service", true},
			addService:     {http.MethodPost, "/v1/ns/service", true},
			setChecker:     {http.MethodPut, "/v1/ns/cluster", true},
			listAll:        {http.MethodGet, "/v1/ns/catalog/services", true},
		}}
	case version2:
		return &api{version: version, login: "/v1/auth/login", routes: map[operation]route{
			readInstance:   {http.MethodGet, "/v2/ns/instance", false},
			addInstance:    {http.MethodPost, "/v2/ns/instance", false},
			setInstance:    {http.MethodPut, "/v2/ns/instance", false},
			removeInstance: {http.MethodDelete, "/v2/ns/instance", false},
			beatInstance:   {http.MethodPut, "/v2/ns/instance/beat", true},
			readService:    {http.MethodGet, "/v2/ns/service", false},
			addService:     {http.MethodPost, "/v2/ns/service", false},
			// v2 has no way to set a cluster's checker and none to list all with their state, and every server that has v2
			// has v1.
			setChecker: {http.MethodPut, "/v1/ns/cluster", true},
			listAll:    {http.MethodGet, "/v1/ns/catalog/services", true},
		}}
	default:
		return &api{version: version3, login: "/v3/auth/user/login", routes: map[operation]route{
			readInstance:   {http.MethodGet, "/v3/admin/ns/instance", false},
			addInstance:    {http.MethodPost, "/v3/admin/ns/instance", false},
			setInstance:    {http.MethodPut, "/v3/admin/ns/instance", false},
			removeInstance: {http.MethodDelete, "/v3/admin/ns/instance", false},
			beatInstance:   {http.MethodPost, "/v3/client/ns/instance", false},
			readService:    {http.MethodGet, "/v3/admin/ns/service", false},
			addService:     {http.MethodPost, "/v3/admin/ns/service", false},
			setChecker:     {http.MethodPut, "/v3/admin/ns/cluster", false},
			listAll:        {http.MethodGet, "/v3/admin/ns/service/list", false},
		}}
	}
}

// call is an operation with what it is about.
type call struct {
	do      operation
	service string     // empty for listAll
	form    url.Values // what the operation has besides namespace, group and service
	limit   int64      // on the answer, in bytes; 0 is maxAnswer
}

// parameters returns all that is sent with the call over a route.
func (c call) parameters(r route, opts Options) url.Values {
	all := url.Values{"namespaceId": {opts.Namespace}}
	switch {
	case c.do == listAll:
		// The server takes groupNameParam for a pattern, and groupName to see whether the user may.
		all.Set("groupName", opts.Group)
		all.Set("groupNameParam", opts.Group)
		all.Set("withInstances", "true")
		all.Set("pageNo", "1")
		all.Set("pageSize", strconv.Itoa(onePage))
	case r.old:
		all.Set("serviceName", opts.Group+"@@"+c.service)
	default:
		all.Set("groupName", opts.Group)
		all.Set("serviceName", c.service)
	}
	maps.Copy(all, c.form)
	return all
}
