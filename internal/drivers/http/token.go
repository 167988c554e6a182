package httpregistry

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// tokenFile is the path of a bearer token which may be replaced at any time, as the kubelet does with a Secret's. The
// empty path is no token.
type tokenFile string

// read returns the token as the file has it now, "" for none. No error repeats what is in the file.
func (f tokenFile) read() (string, error) {
	if f == "" {
		return "", nil
	}
	raw, err := os.ReadFile(string(f))
	if err != nil {
		return "", fmt.Errorf("must be a file that the manager can read, with the token: %w", err)
	}
	token := string(bytes.TrimSpace(raw))
	if token == "" {
		return "", fmt.Errorf("%s is empty", f)
	}
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fmt.Errorf("%s must hold one token and nothing else: no white space within it, only ASCII", f)
	}
	return token, nil
}
