// Package nacos runs real Nacos servers, of versions 2 and 3. The tests of test/registries/nacos prove the driver on them.
//
// Nacos publishes its server as an archive on GitHub, and only its client as jars. But others have published the server's
// modules on Maven Central under names of their own, and these make a server: server/v2 and server/v3 each hold a pom.xml
// that names the modules, a jars.txt with all that they need, and the class that starts them.
package nacos

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/dubbo"
)

const (
	// Admin is the user that may do everything.
	Admin = "nacos"

	// Nacos takes these ports besides that of its API.
	sdkOffset, clusterOffset, raftOffset = 1000, 1001, -1000
)

// Version is a server's major version.
type Version int

// The versions there are.
const (
	V2 Version = 2
	V3 Version = 3
)

// folder is where the version's jars and its class are.
func (v Version) folder() string { return fmt.Sprintf("nacos/server/v%d", v) }

// core is the path of the API of its core.
func (v Version) core() string {
	if v == V2 {
		return "/v1/core"
	}
	return "/v3/admin/core"
}

// Get downloads both versions' servers and the applications in Java, and builds the client that reads them, unless they are
// there, and tells log about it.
func Get(ctx context.Context, log io.Writer) (*java.Jars, error) {
	if _, err := GetReader(ctx, log); err != nil {
		return nil, err
	}
	for _, folder := range []string{V2.folder(), springJars, dubbo.Folder} {
		if _, err := java.Get(ctx, log, folder); err != nil {
			return nil, err
		}
	}
	return java.Get(ctx, log, V3.folder())
}

// Options say what server to start.
type Options struct {
	Version Version
	// Password turns authentication on, with this password for the user [Admin].
	Password string
	// TokenLifetime is how long a login is good for; 0 is Nacos' default, 5 hours.
	TokenLifetime time.Duration
	// CachedUsers makes the server know users and roles only some seconds after its start, as it does by default.
	CachedUsers bool
	// PushDelay is after how long readers see what has changed; 0 is Nacos' default, 500 ms.
	PushDelay time.Duration
}

// Server is a running Nacos of one node.
type Server struct {
	*registries.Server
	// Endpoint is the URL without the context path, which is /nacos.
	Endpoint string
	Port     int

	opts Options
	// peers are the addresses of a cluster's servers, this one included. Empty: it runs alone.
	peers []string
}

// Start gets the server, runs it and returns when it serves.
func Start(ctx context.Context, opts Options) (*Server, error) {
	jars, err := java.Get(ctx, os.Stderr, opts.Version.folder())
	if err != nil {
		return nil, err
	}
	unlock, err := lockStart(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	port, err := process.FreePortWith(ctx, sdkOffset, clusterOffset, raftOffset)
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, Port: port, Endpoint: fmt.Sprintf("http://127.0.0.1:%d", port),
	}
	s.Server, err = registries.Run(ctx, registries.Spec{
		Name: "Nacos", Version: "v" + jars.Version("nacos-naming"), Ready: s.ready,
		Command: func(dir string) (process.Command, error) { return s.command(jars, dir) },
	})
	return s, err
}

// lockStart keeps others from starting meanwhile: several that start together on few cores give up before they are done.
func lockStart(ctx context.Context) (unlock func(), err error) {
	return process.Lock(ctx, filepath.Join(os.TempDir(), fmt.Sprintf("rollcall-nacos-start-%d.lock", os.Getuid())), func() {})
}

func (s *Server) command(jars *java.Jars, dir string) (process.Command, error) {
	conf := filepath.Join(dir, "conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		return process.Command{}, fmt.Errorf("creating the folder for the configuration: %w", err)
	}
	properties, err := s.properties()
	if err != nil {
		return process.Command{}, err
	}
	if err := os.WriteFile(filepath.Join(conf, "application.properties"), []byte(properties), 0o600); err != nil {
		return process.Command{}, fmt.Errorf("writing the configuration: %w", err)
	}
	mode := "-Dnacos.standalone=true"
	if len(s.peers) > 0 {
		mode = "-DembeddedStorage=true" // else a cluster wants a MySQL
		if err := os.WriteFile(filepath.Join(conf, "cluster.conf"), []byte(strings.Join(s.peers, "\n")+"\n"), 0o600); err != nil {
			return process.Command{}, fmt.Errorf("writing the list of the servers: %w", err)
		}
	}
	jvm, args := jars.Command([]string{
		"-Xmx320m",
		"-Djava.net.preferIPv4Stack=true",
		mode,
		"-Dnacos.home=" + dir,
		"-Dderby.system.durability=test",
		"-Dderby.stream.error.file=" + filepath.Join(dir, "derby.log"),
		"-Dspring.config.additional-location=file:" + conf + "/",
	}, []string{filepath.Join(jars.Dir, "Nacos.java")})
	return process.Command{Path: jvm, Args: args}, nil
}

// properties is the configuration. What the archive of a release sets and the tests don't need is left out.
func (s *Server) properties() (string, error) {
	at, err := url.Parse(s.Endpoint)
	if err != nil {
		return "", fmt.Errorf("reading the address: %w", err)
	}
	settings := map[string]string{
		"server.servlet.contextPath":   "/nacos",
		"server.port":                  at.Port(),
		"nacos.server.main.port":       at.Port(), // its name in version 3
		"server.address":               at.Hostname(),
		"server.error.include-message": "ALWAYS",
		"nacos.inetutils.ip-address":   at.Hostname(),
		"spring.autoconfigure.exclude": "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration," +
			"org.springframework.boot.autoconfigure.jdbc.DataSourceTransactionManagerAutoConfiguration," +
			"org.springframework.boot.autoconfigure.ldap.LdapAutoConfiguration",
		// Nothing here has to survive a power cut, and a sync is what Nacos waits for most.
		"nacos.core.protocol.raft.data.sync":      "false",
		"nacos.core.protocol.raft.data.sync_meta": "false",
		// A machine with much to do takes longer than 3 s to make the database.
		"db.pool.config.connectionTimeout":                  "120000",
		"nacos.core.auth.system.type":                       "nacos",
		"nacos.core.auth.enabled":                           strconv.FormatBool(s.opts.Password != ""),
		"nacos.core.auth.admin.enabled":                     strconv.FormatBool(s.opts.Password != ""),
		"nacos.core.auth.caching.enabled":                   strconv.FormatBool(s.opts.CachedUsers),
		"nacos.core.auth.server.identity.key":               "rollcall-test",
		"nacos.core.auth.server.identity.value":             "rollcall-test",
		"nacos.core.auth.plugin.nacos.token.secret.key":     base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"nacos.core.auth.plugin.nacos.token.expire.seconds": "18000",
	}
	if len(s.peers) > 0 {
		// Else a server waits for the console, which is not here, to move the configurations of older versions.
		settings["nacos.config.namespace.compatible.mode"] = "false"
	}
	if s.opts.TokenLifetime > 0 {
		settings["nacos.core.auth.plugin.nacos.token.expire.seconds"] = strconv.Itoa(int(s.opts.TokenLifetime.Seconds()))
	}
	if s.opts.PushDelay > 0 {
		settings["nacos.naming.push.pushTaskDelay"] = strconv.FormatInt(s.opts.PushDelay.Milliseconds(), 10)
	}
	var lines []string
	for key, value := range settings {
		lines = append(lines, key+"="+value+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

// ready makes the user Admin, the first time, and returns nil once that may read.
func (s *Server) ready(ctx context.Context) error {
	token, err := s.Login(ctx, Admin, s.opts.Password)
	if err != nil {
		path := "/v1/auth/users/admin"
		if s.opts.Version == V3 {
			path = "/v3/auth/user/admin"
		}
		_, makeErr := s.Do(ctx, http.MethodPost, path, url.Values{"password": {s.opts.Password}}, "")
		return errors.Join(err, makeErr)
	}
	_, err = s.Do(ctx, http.MethodGet, s.listPath(), url.Values{"serviceName": {"ready"}}, token)
	return err
}

func (s *Server) listPath() string {
	if s.opts.Version == V3 {
		return "/v3/client/ns/instance/list"
	}
	return "/v1/ns/instance/list"
}

// Login returns a token for the user, and none where authentication is off.
func (s *Server) Login(ctx context.Context, user, password string) (string, error) {
	if s.opts.Password == "" {
		return "", nil
	}
	path := "/v1/auth/login"
	if s.opts.Version == V3 {
		path = "/v3/auth/user/login"
	}
	body, err := s.Do(ctx, http.MethodPost, path, url.Values{"username": {user}, "password": {password}}, "")
	if err != nil {
		return "", err
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return "", fmt.Errorf("decoding the login: %w", err)
	}
	return answer.AccessToken, nil
}

// CreateNamespace makes a namespace with the ID. Version 2 is without the console, which makes them there, and takes any ID.
func (s *Server) CreateNamespace(ctx context.Context, id string) error {
	token, err := s.Login(ctx, Admin, s.opts.Password)
	if err != nil || s.opts.Version == V2 {
		return err
	}
	_, err = s.Do(ctx, http.MethodPost, "/v3/admin/core/namespace", url.Values{
		"namespaceId": {id}, "customNamespaceId": {id}, "namespaceName": {id},
	}, token)
	return err
}

// AddUser makes a user who may read and write one namespace. The server knows it a few seconds later.
func (s *Server) AddUser(ctx context.Context, user, password, namespace string) error {
	token, err := s.Login(ctx, Admin, s.opts.Password)
	if err != nil {
		return err
	}
	users, roles, permissions := "/v3/auth/user", "/v3/auth/role", "/v3/auth/permission"
	if s.opts.Version == V2 {
		users, roles, permissions = "/v1/auth/users", "/v1/auth/roles", "/v1/auth/permissions"
	}
	role := "role-of-" + user
	for _, one := range []struct {
		path string
		form url.Values
	}{
		{users, url.Values{"username": {user}, "password": {password}}},
		{roles, url.Values{"username": {user}, "role": {role}}},
		{permissions, url.Values{"role": {role}, "resource": {namespace + ":*:*"}, "action": {"rw"}}},
	} {
		if _, err := s.Do(ctx, http.MethodPost, one.path, one.form, token); err != nil {
			return err
		}
	}
	return nil
}

// Do makes a request of the server's API, with the parameters in the query, and returns the body of a good answer.
func (s *Server) Do(ctx context.Context, method, path string, form url.Values, token string) ([]byte, error) {
	api := registries.NewClient(s.Endpoint + "/nacos")
	api.Header = http.Header{}
	if token != "" {
		api.Header.Set("Authorization", "Bearer "+token)
	}
	return api.Do(ctx, method, path+"?"+form.Encode(), nil)
}
