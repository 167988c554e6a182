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

// TLSError marks the error of a connection by [registry.Terminal], with the field that is wrong, if the client or the server refused a
// certificate: that lasts until a file is replaced on either side. Any other error is returned as it is. A driver whose certificates are
// for a name other than the endpoint's checks for [x509.HostnameError] itself first.
func TLSError(err error) error {
	var (
		otherHost x509.HostnameError
		theirs    *tls.CertificateVerificationError
		unknown   x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &otherHost):
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("does not match the registry's certificate: %w", err)))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return registry.Terminal(registry.FieldError("endpoint", fmt.Errorf("has a certificate that has expired or is not valid yet: %w", err)))
	case errors.As(err, &theirs), errors.As(err, &unknown), errors.As(err, &invalid):
		return registry.Terminal(registry.FieldError("tls.caFile",
			fmt.Errorf("must contain the CA that signed the registry's certificate: %w", err)))
	case refusesCertificate(err):
		return registry.Terminal(registry.FieldError("tls.certFile", fmt.Errorf("is not a certificate that the registry accepts: %w", err)))
	}
	return err
}

// refusesCertificate recognizes the alerts by which a server ends a handshake (RFC 8446, 6.2) because of the client's certificate.
// Package crypto/tls has no type for them.
func refusesCertificate(err error) bool {
	var remote *net.OpError
	if !errors.As(err, &remote) || remote.Op != "remote error" {
		return false
	}
	alert := remote.Err.Error()
	return strings.Contains(alert, "certificate") || strings.HasSuffix(alert, "access denied")
}
