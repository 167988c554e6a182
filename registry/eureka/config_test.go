package eureka_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/eureka"
)

const good = "https://eureka.example.com:8761/eureka"

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	at := func(endpoint string) registry.Config { return registry.Config{Endpoint: endpoint} }
	with := func(options string) registry.Config {
		return registry.Config{Endpoint: good, Options: json.RawMessage(options)}
	}
	auth := func(a registry.Auth) registry.Config { return registry.Config{Endpoint: good, Auth: a} }
	empty := writeFile(t, "password", "\n")
	for name, tc := range map[string]struct {
		reason string
		cfg    registry.Config
		field  string
		says   string
	}{
		"no endpoint":         {"there is no default", at(""), "endpoint", "is missing"},
		"no scheme":           {"a bare host is ambiguous", at("eureka:8761"), "endpoint", "must begin with http:// or https://"},
		"empty peer":          {"a comma too many hides a typing error", at(good + ","), "endpoint", "empty address"},
		"one peer twice":      {"it would be asked twice", at(good + "," + good), "endpoint", "twice"},
		"password":            {"Spring's defaultZone has it there; the endpoint is shown", at("https://me:hunter2@eureka/eureka"), "endpoint", "credentials"},
		"a query":             {"the API has its own", at(good + "?a=b"), "endpoint", "query"},
		"token":               {"Eureka knows none, and it must not be ignored", auth(registry.Auth{TokenFile: empty}), "auth.tokenFile", "remove it"},
		"user, no password":   {"half of it is useless", auth(registry.Auth{Username: "me"}), "auth.passwordFile", "is missing"},
		"password, no user":   {"half of it is useless", auth(registry.Auth{PasswordFile: empty}), "auth.username", "is missing"},
		"empty password":      {"a Secret without content", auth(registry.Auth{Username: "me", PasswordFile: empty}), "auth.passwordFile", "is empty"},
		"no password file":    {"a Secret was not mounted", auth(registry.Auth{Username: "me", PasswordFile: "/does/not/exist"}), "auth.passwordFile", "can read"},
		"ca file over http":   {"it promises what is not there", registry.Config{Endpoint: "http://eureka", TLS: registry.TLS{CAFile: empty}}, "tls.caFile", "not https://"},
		"ca file, not PEM":    {"nobody would be trusted", registry.Config{Endpoint: good, TLS: registry.TLS{CAFile: empty}}, "tls.caFile", "PEM"},
		"unknown option":      {"a misspelt one must not be ignored", with(`{"durationInSec":90}`), "options", `"durationInSec"`},
		"option of a type":    {"Eureka's are whole seconds", with(`{"durationInSecs":"90s"}`), "options.durationInSecs", "of type int"},
		"no renewal":          {"every entry would end", with(`{"renewalIntervalInSecs":0}`), "options.renewalIntervalInSecs", "from 1 to"},
		"below zero":          {"time does not run back", with(`{"durationInSecs":-1}`), "options.durationInSecs", "from 1 to"},
		"ends too early":      {"until another leader works it takes up to 17 s", with(`{"renewalIntervalInSecs":5,"durationInSecs":29}`), "options.durationInSecs", "write 30 or more"},
		"health of no URL":    {"Spring Boot Admin takes URLs only", with(`{"healthCheckUrl":"/actuator/health"}`), "options.healthCheckUrl", "http://{host}:{port}/"},
		"health of no host":   {"it leads nowhere", with(`{"healthCheckUrl":"http://:{port}/"}`), "options.healthCheckUrl", "http://{host}:{port}/"},
		"status of a name":    {"it is not filled in", with(`{"statusPageUrl":"http://{pod}:{port}/"}`), "options.statusPageUrl", "{host} and {port}"},
		"home of no scheme":   {"browsers take other things", with(`{"homePageUrl":"ftp://{host}/"}`), "options.homePageUrl", "http://{host}:{port}/"},
		"a lease of a month":  {"the server computes in 32 bits", with(`{"durationInSecs":2592000}`), "options.durationInSecs", "to 86400"},
		"ends before renewal": {"every entry would end", with(`{"renewalIntervalInSecs":90}`), "options.durationInSecs", "write 200 or more"},
		"list from tomorrow":  {"a list can't be younger than new", with(`{"listStalenessInSecs":-1}`), "options.listStalenessInSecs", "from 0 to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := eureka.New(t.Context(), tc.cfg)
			field, _ := registry.FieldOf(err)
			if err == nil || field != tc.field || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("New: got error %v, want one of field %s with %q\nreason: %s", err, tc.field, tc.says, tc.reason)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("New: the error repeats a secret: %v", err)
			}
		})
	}
}

func TestNewNeedsNoServer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg                 registry.Config
		interval, staleness time.Duration
	}{
		"default": {registry.Config{Endpoint: "http://eureka.invalid/eureka/"}, 30 * time.Second, 210 * time.Second},
		"peers": {
			registry.Config{
				Endpoint: " https://a.invalid/eureka/v2, https://[fd00::1]:8761/eureka ", Timeout: time.Second,
				Options: json.RawMessage(`{"renewalIntervalInSecs":5,"durationInSecs":30,"listStalenessInSecs":0,"homePageUrl":"","healthCheckUrl":"https://{host}/h"}`),
			}, 5 * time.Second, 0,
		},
	} {
		d := open(t, tc.cfg)
		if i, s := d.HeartbeatInterval(), d.Staleness(); i != tc.interval || s != tc.staleness {
			t.Errorf("%s: got an interval of %s and a staleness of %s; want %s, %s", name, i, s, tc.interval, tc.staleness)
		}
	}
}
