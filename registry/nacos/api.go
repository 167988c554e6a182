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
	patchInstance
	removeInstance
	listInstances
	beatInstance
	readService
	addService
	setChecker
	listAll
	listCluster // the instances of a service in a Nacos cluster, those out of rotation included
	listMembers
)

// route is where an operation is in one version of the API.
type route struct {
	method, path string
	// old is v1's style: the service's name has its group before it, as in G@@name, and the answer is bare. In the new one
	// the group is a parameter of its own, and the answer is in an envelope.
	old bool
	// safe: it changes nothing, although its method may. A GET is anyway.
	safe bool
}

func (r route) changesNothing() bool { return r.safe || r.method == http.MethodGet }

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
			readInstance:   {method: http.MethodGet, path: "/v1/ns/instance", old: true},
			addInstance:    {method: http.MethodPost, path: "/v1/ns/instance", old: true},
			setInstance:    {method: http.MethodPut, path: "/v1/ns/instance", old: true},
			patchInstance:  {method: http.MethodPatch, path: "/v1/ns/instance", old: true},
			listInstances:  {method: http.MethodGet, path: "/v1/ns/instance/list", old: true},
			removeInstance: {method: http.MethodDelete, path: "/v1/ns/instance", old: true},
			beatInstance:   {method: http.MethodPut, path: "/v1/ns/instance/beat", old: true},
			readService:    {method: http.MethodGet, path: "/v1/ns/service", old: true},
			addService:     {method: http.MethodPost, path: "/v1/ns/service", old: true},
			setChecker:     {method: http.MethodPut, path: "/v1/ns/cluster", old: true},
			listAll:        {method: http.MethodGet, path: "/v1/ns/catalog/services", old: true},
			listCluster:    {method: http.MethodGet, path: "/v1/ns/catalog/instances", old: true},
			listMembers:    {method: http.MethodGet, path: "/v1/core/cluster/nodes", old: true},
		}}
	case version2:
		return &api{version: version, login: "/v1/auth/login", routes: map[operation]route{
			readInstance:   {method: http.MethodGet, path: "/v2/ns/instance"},
			addInstance:    {method: http.MethodPost, path: "/v2/ns/instance"},
			setInstance:    {method: http.MethodPut, path: "/v2/ns/instance"},
			listInstances:  {method: http.MethodGet, path: "/v2/ns/instance/list"},
			removeInstance: {method: http.MethodDelete, path: "/v2/ns/instance"},
			beatInstance:   {method: http.MethodPut, path: "/v2/ns/instance/beat", old: true},
			readService:    {method: http.MethodGet, path: "/v2/ns/service"},
			addService:     {method: http.MethodPost, path: "/v2/ns/service"},
			// v2 has no way to set a cluster's checker and none to list instances with their state, and answers a patch in another
			// form; and every server that has v2 has v1.
			patchInstance: {method: http.MethodPatch, path: "/v1/ns/instance", old: true},
			setChecker:    {method: http.MethodPut, path: "/v1/ns/cluster", old: true},
			listAll:       {method: http.MethodGet, path: "/v1/ns/catalog/services", old: true},
			listCluster:   {method: http.MethodGet, path: "/v1/ns/catalog/instances", old: true},
			listMembers:   {method: http.MethodGet, path: "/v1/core/cluster/nodes", old: true},
		}}
	default:
		return &api{version: version3, login: "/v3/auth/user/login", routes: map[operation]route{
			readInstance:   {method: http.MethodGet, path: "/v3/admin/ns/instance"},
			addInstance:    {method: http.MethodPost, path: "/v3/admin/ns/instance"},
			setInstance:    {method: http.MethodPut, path: "/v3/admin/ns/instance"},
			patchInstance:  {method: http.MethodPut, path: "/v3/admin/ns/instance/partial"},
			listInstances:  {method: http.MethodGet, path: "/v3/admin/ns/instance/list"},
			removeInstance: {method: http.MethodDelete, path: "/v3/admin/ns/instance"},
			beatInstance:   {method: http.MethodPost, path: "/v3/client/ns/instance"},
			readService:    {method: http.MethodGet, path: "/v3/admin/ns/service"},
			addService:     {method: http.MethodPost, path: "/v3/admin/ns/service"},
			setChecker:     {method: http.MethodPut, path: "/v3/admin/ns/cluster"},
			listAll:        {method: http.MethodGet, path: "/v3/admin/ns/service/list"},
			listCluster:    {method: http.MethodGet, path: "/v3/admin/ns/instance/list"},
			listMembers:    {method: http.MethodGet, path: "/v3/admin/core/cluster/node/list"},
		}}
	}
}

// call is an operation with what it is about.
type call struct {
	do      operation
	service string     // empty for listAll and listMembers
	form    url.Values // what the operation has besides namespace, group and service
	limit   int64      // on the answer, in bytes; 0 is maxAnswer
}

// parameters returns all that is sent with the call over a route.
func (c call) parameters(r route, opts Options) url.Values {
	if c.do == listMembers {
		return url.Values{}
	}
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
