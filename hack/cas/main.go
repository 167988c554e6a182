// Command cas writes the CAs that Rollcall's image trusts into a file: those of Mozilla's root program, as the Go team keeps
// them in a module.
//
//	go run ./hack/cas bin/ca-certificates.crt
//
// The same go.mod gives the same bytes, and Dependabot brings the next ones.
package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const module = "golang.org/x/crypto/x509roots/fallback"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cas FILE")
		os.Exit(1)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cas:", err)
		os.Exit(1)
	}
}

func write(file string) error {
	version, err := versionOf(module)
	if err != nil {
		return err
	}
	text, err := authorities(version)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("writing the CAs: %w", err)
	}
	return nil
}

// versionOf returns the version of a module that is in this program.
func versionOf(module string) (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", errors.New("this program has no build information: run it by go run ./hack/cas")
	}
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version, nil
		}
	}
	return "", fmt.Errorf("this program's build information does not have %s: run it by go run ./hack/cas", module)
}

// authorities returns the certificates in PEM form, each with its subject above it, and the module's version on top. It leaves
// out a CA that Mozilla trusts for older certificates only: a PEM file can't express that.
func authorities(version string) ([]byte, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# The CAs of Mozilla's root program, from %s %s.\n", module, version)
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("reading a certificate of %s: %w", module, err)
		}
		fmt.Fprintf(&text, "\n# %s\n", certificate.Subject)
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	}
	return text.Bytes(), nil
}
