package eureka

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// The statuses that are used. The server has DOWN too.
const (
	statusUp           = "UP"
	statusStarting     = "STARTING"
	statusOutOfService = "OUT_OF_SERVICE"
	statusUnknown      = "UNKNOWN" // of an override: there is none
)

// instanceInfo is an instance in Eureka's JSON, as com.netflix.appinfo.InstanceInfo is written and read.
type instanceInfo struct {
	InstanceID         string            `json:"instanceId"`
	App                string            `json:"app"`
	HostName           string            `json:"hostName"`
	IPAddr             string            `json:"ipAddr"`
	VIPAddress         string            `json:"vipAddress"`
	SecureVIPAddress   string            `json:"secureVipAddress,omitempty"`
	HomePageURL        string            `json:"homePageUrl,omitempty"`
	StatusPageURL      string            `json:"statusPageUrl,omitempty"`
	HealthCheckURL     string            `json:"healthCheckUrl,omitempty"`
	Status             string            `json:"status"`
	OverriddenStatus   string            `json:"overriddenstatus,omitempty"` // servers read this spelling of all versions
	Port               portInfo          `json:"port"`
	SecurePort         portInfo          `json:"securePort"`
	DataCenterInfo     *dataCenterInfo   `json:"dataCenterInfo,omitempty"`
	LeaseInfo          *leaseInfo        `json:"leaseInfo,omitempty"`
	Metadata           map[string]string `json:"metadata"`
	LastDirtyTimestamp json.Number       `json:"lastDirtyTimestamp,omitempty"`
}

type portInfo struct {
	Number  json.Number `json:"$"`
	Enabled any         `json:"@enabled"` // written as a string
}

type dataCenterInfo struct {
	Class string `json:"@class"`
	Name  string `json:"name"`
}

type leaseInfo struct {
	RenewalIntervalInSecs int `json:"renewalIntervalInSecs"`
	DurationInSecs        int `json:"durationInSecs"`
	// LastRenewalTimestamp is the server's, in milliseconds. It counts the lease from there, and it lies DurationInSecs ahead
	// of a renewal (Lease.renew).
	LastRenewalTimestamp json.Number `json:"lastRenewalTimestamp,omitempty"`
}

// envelope is how one instance is sent, and answered.
type envelope struct {
	Instance *instanceInfo `json:"instance"`
}

// application is the answer to GET /apps/{app}.
type application struct {
	Application struct {
		Instance []instanceInfo `json:"instance"`
	} `json:"application"`
}

// applications is the answer to GET /apps.
type applications struct {
	Applications *struct {
		Application *[]struct {
			Instance []instanceInfo `json:"instance"`
		} `json:"application"`
	} `json:"applications"`
}

// unusedSecurePort is what Eureka's own client sends if there is no secure port.
const unusedSecurePort = "443"

// infoOf returns what is posted of an instance. What Spring's clients make of it: vipAddress is the name that they look
// up, hostName and port are where they go, zone and weight are in the metadata.
func infoOf(in registry.Instance, opts Options, status string) instanceInfo {
	host, port := driverkit.InURL(cmp.Or(in.Metadata[metaHostName], in.Address)), json.Number(strconv.Itoa(in.Port))
	info := instanceInfo{
		InstanceID:       instanceID(in),
		App:              in.Service,
		HostName:         host,
		IPAddr:           in.Address,
		VIPAddress:       in.Service,
		HomePageURL:      urlOf(homePage, host, in),
		StatusPageURL:    urlOf(opts.StatusPageURL, host, in),
		HealthCheckURL:   urlOf(opts.HealthCheckURL, host, in),
		Status:           status,
		OverriddenStatus: statusUnknown,
		Port:             portInfo{Number: port, Enabled: "true"},
		SecurePort:       portInfo{Number: unusedSecurePort, Enabled: "false"},
		DataCenterInfo: &dataCenterInfo{
			Class: "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", Name: "MyOwn",
		},
		LeaseInfo: &leaseInfo{
			RenewalIntervalInSecs: opts.RenewalIntervalInSecs, DurationInSecs: opts.DurationInSecs,
		},
		Metadata: in.Meta(),
	}
	if isSecure(in) {
		info.Port.Enabled, info.SecurePort = "false", portInfo{Number: port, Enabled: "true"}
		info.SecureVIPAddress = in.Service
	}
	return info
}

// metaHostName is the metadata that clients are given as the host name, in place of the address.
const metaHostName = "hostName"

// isSecure reports whether clients are to use https, in the metadata that Spring's clients of other registries go by.
func isSecure(in registry.Instance) bool { return in.Metadata["secure"] == "true" }

// instanceID is the identity, and is the same whoever makes it. What stands behind the second colon after the address is
// the service, so no two identities have one ID.
func instanceID(in registry.Instance) string { return in.Endpoint() + ":" + in.Service }

// entry reads back what infoOf wrote. An entry that somebody else wrote may give anything.
func (i instanceInfo) entry() (registry.Entry, error) {
	served := i.Port
	if !i.Port.is(i.Port.Number.String()) && i.SecurePort.is(i.SecurePort.Number.String()) {
		served = i.SecurePort
	}
	port, err := strconv.Atoi(served.Number.String())
	if err != nil {
		return registry.Entry{}, fmt.Errorf("instance %q has a port that is not a number: %q", i.InstanceID, served.Number)
	}
	if i.Status == "" {
		return registry.Entry{}, fmt.Errorf("instance %q has no status", i.InstanceID)
	}
	e := registry.Entry{
		Instance: registry.Instance{Service: i.VIPAddress, Address: i.IPAddr, Port: port}, State: registry.OutOfService,
	}
	e.SetMeta(i.Metadata)
	if i.Status == statusUp { // clients are given no other
		e.State = registry.InService
	}
	return e, nil
}

// lastsAt reports whether the lease lasts at a time of the server, also if nothing has renewed it since the list was made. What
// is not known counts as ended. The time is that of an answer's header, which is up to a second old.
func (i instanceInfo) lastsAt(now time.Time) bool {
	if now.IsZero() || i.LeaseInfo == nil {
		return false
	}
	renewed, err := i.LeaseInfo.LastRenewalTimestamp.Int64()
	ends := time.UnixMilli(renewed).Add(seconds(i.LeaseInfo.DurationInSecs))
	return err == nil && now.Add(time.Second).Before(ends)
}

func (i instanceInfo) uid() string { return i.Metadata[registry.MetaUID] }

// foreign is what clients are given and this driver does not change: at its plain port, its secure one, or both. What can't be read is at
// no pod's address.
func (i instanceInfo) foreign(cluster string) (entries []registry.Entry) {
	if i.Status != statusUp || !driverkit.IsForeignTo(cluster, i.Metadata) {
		return nil
	}
	plain, err := i.entry()
	if err == nil && i.isOurs(cluster, plain) {
		return nil
	}
	add := func(e registry.Entry) {
		e = driverkit.Foreign(e.Service, e.Address, e.Port)
		entries = append(entries, driverkit.Tagged(e, i.Metadata, "instance ID "+i.InstanceID))
	}
	if err == nil {
		add(plain)
	}
	i.Port.Enabled = false
	if secure, err := i.entry(); err == nil && secure.Port != plain.Port {
		add(secure)
	}
	return entries
}

// isOurs reports whether the cluster's Rollcall wrote it. An ID that is not the identity's is of somebody who copied
// our metadata: we could not remove that entry, so it is foreign.
func (i instanceInfo) isOurs(cluster string, e registry.Entry) bool {
	return i.Metadata[registry.MetaCluster] == cluster && i.InstanceID == instanceID(e.Instance)
}

// entriesOf takes a whole listing or nothing: an entry that is missing from it may be registered forever.
func entriesOf(raw []byte, cluster string, own *spellings) ([]registry.Entry, error) {
	var listing applications
	if err := json.Unmarshal(raw, &listing); err != nil {
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	if listing.Applications == nil || listing.Applications.Application == nil {
		return nil, errors.New(`the answer has no "applications" with an "application"`)
	}
	entries := []registry.Entry{}
	var foreign []registry.Entry
	for _, app := range *listing.Applications.Application {
		for _, info := range app.Instance {
			foreign = append(foreign, info.foreign(cluster)...)
			if info.Metadata[registry.MetaCluster] != cluster {
				continue
			}
			e, err := info.entry()
			if err != nil {
				return nil, err
			}
			if info.isOurs(cluster, e) {
				entries = append(entries, e)
				own.note(e.Service)
			}
		}
	}
	return append(entries, own.foreign(foreign)...), nil
}

// spellings are how the cluster writes its services' names, by how clients look them up: in any case. They outlast the entries, for the
// last one of a service goes before its application's.
type spellings struct {
	mu    sync.Mutex
	known map[string][]string
}

func (s *spellings) note(service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := strings.ToUpper(service); !slices.Contains(s.known[key], service) {
		s.known[key] = append(s.known[key], service)
	}
}

// foreign are entries under the names by which clients of the cluster's services find them.
func (s *spellings) foreign(found []registry.Entry) (entries []registry.Entry) {
	for _, e := range found {
		for _, name := range s.of(e.Service) {
			e.Service = name
			entries = append(entries, e)
		}
	}
	return entries
}

// of returns the names of the cluster's services that a VIP stands for, which may be several with commas between them, or the VIP's own.
func (s *spellings) of(vip string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range strings.SplitSeq(vip, ",") {
		if known := s.known[strings.ToUpper(name)]; len(known) > 0 && !slices.Contains(known, name) {
			names = append(names, known...)
		} else {
			names = append(names, name)
		}
	}
	return names
}
