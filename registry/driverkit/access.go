package driverkit

import "github.com/rollcall-dev/rollcall/registry"

// CredentialsField is the field to check if the server refuses access. A client certificate counts if nothing else authenticates
// Rollcall.
func CredentialsField(cfg registry.Config) string {
	switch {
	case cfg.Auth.TokenFile != "":
		return "auth.tokenFile"
	case cfg.Auth.Username != "":
		return "auth.passwordFile"
	case cfg.TLS.CertFile != "":
		return "tls.certFile"
	}
	return "auth"
}

// AccessField is the first field of tls and auth that is set, for drivers that need neither; empty for none.
func AccessField(cfg registry.Config) string {
	for _, f := range []struct{ name, value string }{
		{"tls.caFile", cfg.TLS.CAFile},
		{"tls.certFile", cfg.TLS.CertFile},
		{"tls.keyFile", cfg.TLS.KeyFile},
		{"auth.tokenFile", cfg.Auth.TokenFile},
		{"auth.username", cfg.Auth.Username},
		{"auth.passwordFile", cfg.Auth.PasswordFile},
	} {
		if f.value != "" {
			return f.name
		}
	}
	return ""
}
