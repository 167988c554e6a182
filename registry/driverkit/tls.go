package driverkit

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// TLSError gives the error of a connection its class where a certificate was refused, by the client or by the server, which stays
// wrong until a file is replaced here or there: [Terminal], with the field that is wrong. Any other error is returned as it
// is. A driver whose certificates are for another name than the endpoint's looks for [x509.HostnameError] itself first.
func TLSError(err error) error {
	var (
		otherHost x509.HostnameError
		theirs    *tls.CertificateVerificationError
		unknown   x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &otherHost):
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("is not what the registry's certificate is for: %w", err)))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("shows a certificate that has expired or is not valid yet: %w", err)))
	case errors.As(err, &theirs), errors.As(err, &unknown), errors.As(err, &invalid):
		return registry.Terminal(registry.FieldError("tls.caFile", fmt.Errorf("does not vouch for the registry: %w", err)))
	case refusesCertificate(err):
		return registry.Terminal(registry.FieldError("tls.certFile", fmt.Errorf("is not what the registry asks for: %w", err)))
	}
	return err
}

// refusesCertificate knows, of the alerts that a server can end a handshake with (RFC 8446, 6.2), those that speak of the
// client's certificate. Package crypto/tls has no type for them.
func refusesCertificate(err error) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return false
	}
	alert := remote.Err.Error()
	return strings.Contains(alert, "certificate") || strings.HasSuffix(alert, "access denied")
}
