package nacos

import (
	"crypto/fips140"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // it is what the servers compare with
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// accessKey signs requests, as Nacos' own clients do (NamingResourceInjector and SignUtil in nacos-client 2.5.1 and 3.0.3).
type accessKey struct{ id, secret string }

// newAccessKey returns nil if the options are for a user of Nacos.
func newAccessKey(opts Options, c driverkit.Credentials) (*accessKey, error) {
	switch {
	case opts.Login != loginAccessKey:
		return nil, nil //nolint:nilnil // there is none to sign with
	case fips140.Enforced():
		return nil, registry.FieldError("options.login", errors.New("accessKey signs with HMAC-SHA1, which GODEBUG=fips140=only does not allow: "+
			"set login to password, or fips140=on"))
	case c.Username == "":
		return nil, registry.FieldError("auth.username", errors.New("is missing: set the access key, as options.login is accessKey"))
	}
	return &accessKey{id: c.Username, secret: c.Password}, nil
}

// sign adds the signature to the parameters of a call, which is about a service or about none.
func (k *accessKey) sign(form url.Values, group, service string, now time.Time) {
	data := strconv.FormatInt(now.UnixMilli(), 10)
	if service != "" {
		data += "@@" + group + "@@" + service
	}
	mac := hmac.New(sha1.New, []byte(k.secret))
	_, _ = mac.Write([]byte(data)) // it never fails
	form.Set("ak", k.id)
	form.Set("data", data)
	form.Set("signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

func (k *accessKey) notAllowed(err error) error {
	return driverkit.Away(registry.Terminal(registry.FieldError("auth.username", fmt.Errorf(
		"access key %q may not do this, or auth.passwordFile holds the secret key of another, or the clocks differ: %w", k.id, err))))
}
