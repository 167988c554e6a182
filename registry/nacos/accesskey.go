package nacos

import (
	"crypto/fips140"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // it is what the servers compare with
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// accessKey signs requests, as Nacos' own clients do (NamingResourceInjector, SignUtil and CalculateV4SigningKeyUtil in nacos-client 2.5.1
// and 3.0.3).
type accessKey struct {
	id, secret string
	// token is that of temporary credentials, empty for others, which end at expires if that is known.
	token   string
	expires time.Time
	// region makes the signature one of version 4.
	region string
}

// readCredentials reads those that the options ask for. There is no key for a user of Nacos.
func readCredentials(auth registry.Auth, opts Options) (c driverkit.Credentials, key *accessKey, err error) {
	if opts.Login == loginAccessKey || opts.Login == loginSTS {
		if fips140.Enforced() {
			return c, nil, registry.FieldError("options.login", fmt.Errorf("%s signs with HMAC-SHA1, which GODEBUG=fips140=only does not allow: "+
				"set login to password, or fips140=on", opts.Login))
		}
	}
	if opts.Login == loginSTS {
		return readSTS(auth, opts)
	}
	c, err = driverkit.ReadCredentials(auth, driverkit.Password)
	switch {
	case err != nil || opts.Login != loginAccessKey:
		return c, nil, err
	case c.Username == "":
		return c, nil, registry.FieldError("auth.username", errors.New("is missing: set the access key, as options.login is accessKey"))
	}
	return c, &accessKey{id: c.Username, secret: c.Password, region: opts.SignatureRegionID}, nil
}

// temporary are credentials as Alibaba Cloud's STS and the metadata of its servers give them.
type temporary struct {
	AccessKeyID     string `json:"AccessKeyId"`     //nolint:tagliatelle // as it is written there
	AccessKeySecret string `json:"AccessKeySecret"` //nolint:tagliatelle // the same
	SecurityToken   string `json:"SecurityToken"`   //nolint:tagliatelle // the same
	Expiration      string `json:"Expiration"`      //nolint:tagliatelle // the same
}

func readSTS(auth registry.Auth, opts Options) (c driverkit.Credentials, key *accessKey, err error) {
	c, err = driverkit.ReadCredentials(auth, driverkit.Document)
	if err != nil {
		return c, nil, err
	}
	var t struct {
		temporary

		Credentials *temporary `json:"Credentials"` //nolint:tagliatelle // in the answer to AssumeRole
	}
	if json.Unmarshal([]byte(c.Token), &t) == nil && t.Credentials != nil {
		t.temporary = *t.Credentials
	}
	if t.AccessKeyID == "" || t.AccessKeySecret == "" || t.SecurityToken == "" {
		return c, nil, registry.FieldError("auth.tokenFile", errors.New(
			"must hold JSON with AccessKeyId, AccessKeySecret and SecurityToken, as options.login is sts"))
	}
	key = &accessKey{id: t.AccessKeyID, secret: t.AccessKeySecret, token: t.SecurityToken, region: opts.SignatureRegionID}
	key.expires, _ = time.Parse(time.RFC3339, t.Expiration) // it is for an error only
	return driverkit.Credentials{Username: key.id, Password: key.secret, Token: key.token}, key, nil
}

// sign adds the signature to the parameters of a call, which is about a service or about none.
func (k *accessKey) sign(form url.Values, group, service string, now time.Time) {
	data := strconv.FormatInt(now.UnixMilli(), 10)
	if service != "" {
		data += "@@" + group + "@@" + service
	}
	secret := k.secret
	if k.region != "" {
		secret = signingKey(secret, k.region, now)
		form.Set("signatureVersion", "v4")
	}
	mac := hmac.New(sha1.New, []byte(secret))
	_, _ = mac.Write([]byte(data)) // it never fails
	form.Set("ak", k.id)
	form.Set("data", data)
	form.Set("signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// signingKey is the key of a day and a region, by which a signature of version 4 is made. The product is that of Nacos' clients in Java and
// Rust; its client in Go has mse (2.3.5).
func signingKey(secret, region string, now time.Time) string {
	key := []byte("aliyun_v4" + secret)
	for _, part := range []string{now.UTC().Format("20060102"), region, "mse-nacos", "aliyun_v4_request"} {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	return base64.StdEncoding.EncodeToString(key)
}

func (k *accessKey) notAllowed(err error) error {
	field, why := "auth.username", "or auth.passwordFile holds the secret key of another"
	if k.token != "" {
		field, why = "auth.tokenFile", "or its token has expired"
		if !k.expires.IsZero() {
			why = "or its token, which is good until " + k.expires.UTC().Format(time.RFC3339) + ", has expired"
		}
	}
	return driverkit.Away(registry.Terminal(registry.FieldError(field, fmt.Errorf(
		"access key %q may not do this, %s, or the clocks or signatureRegionId differ: %w", k.id, why, err))))
}
