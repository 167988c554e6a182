package plugin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/reason"
)

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 256 << 20

// answered reads what a manager serves at a path: over the API server's proxy, which does not pass on who asks. A manager that has to know
// that serves HTTPS, and is asked with the person's token over a port-forward, which no NetworkPolicy is in the way of.
func (c *cluster) answered(ctx context.Context, pod *corev1.Pod, path string, parameters map[string]string) ([]byte, error) {
	port := portOf(pod)
	if port == "" {
		return nil, fmt.Errorf("the manager's pod %s has no port with the name %s", pod.Name, metricsPort)
	}
	if isSecure(pod) {
		return c.forwarded(ctx, pod, port, path, parameters)
	}
	text, err := c.pods.Pods(c.installation).ProxyGet("http", pod.Name, port, path, parameters).DoRaw(ctx)
	if apierrors.IsBadRequest(err) { // a program of one's own may have other flags
		return c.forwarded(ctx, pod, port, path, parameters)
	}
	return text, c.proxyError(err, pod.Name)
}

// isSecure reports whether the flags of a manager set --metrics-secure.
func isSecure(pod *corev1.Pod) (secure bool) {
	for _, container := range pod.Spec.Containers {
		for _, argument := range container.Args {
			if name, value, set := strings.Cut(argument, "="); name == "--metrics-secure" {
				secure = !set || value == "true"
			}
		}
	}
	return secure
}

func (c *cluster) forwarded(
	ctx context.Context, pod *corev1.Pod, port, path string, parameters map[string]string,
) ([]byte, error) {
	if c.rest.Impersonate.UserName != "" {
		return nil, fmt.Errorf("the manager %s runs with --metrics-secure and would answer by your own rights: leave out --as", pod.Name)
	}
	person, err := rest.HTTPClientFor(tokenOnly(c.rest))
	if err != nil {
		return nil, fmt.Errorf("reading your token: %w", err)
	}
	// The token is added to each request, so that it would go wherever an answer leads.
	person.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ctx, end := context.WithCancel(ctx)
	defer end()
	local, err := c.forward(ctx, pod, port)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range parameters {
		query.Set(name, value)
	}
	at := url.URL{Scheme: "https", Host: local, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := person.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the manager %s: %w", pod.Name, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading what the manager %s answered: %w", pod.Name, err)
	}
	return text, c.refused(response.StatusCode, pod.Name, strings.TrimSpace(string(text)))
}

// tokenOnly is the token with which the person logs in to the API server, and neither password nor key, for a server that has a certificate
// of its own. The tunnel shows whose it is: the API server has made it to the manager's pod. No proxy is in between.
func tokenOnly(of *rest.Config) *rest.Config {
	own := rest.CopyConfig(of)
	own.TLSClientConfig, own.Username, own.Password = rest.TLSClientConfig{Insecure: true}, "", ""
	own.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // as http.Transport has it
	return own
}

// refused explains why a manager did not answer a person who is known.
func (c *cluster) refused(code int, name, text string) error {
	switch code {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return fmt.Errorf("the manager %s runs with --metrics-secure and needs your token, and answers %q. A kubeconfig with a client "+
			"certificate has no token: pass one of a ServiceAccount in a kubeconfig of its own, as in %s",
			name, text, reason.Docs(c.version, "docs/status-page.md"))
	case http.StatusForbidden:
		return &exitError{exitForbidden, fmt.Errorf("the manager %s answers: %s", name, text)}
	case http.StatusNotFound:
		return noPage(name)
	default:
		return fmt.Errorf("the manager %s answers %d: %s", name, code, text)
	}
}

var forwarding = regexp.MustCompile(`^Forwarding from (\S+) -> `)

// kubectlForward has kubectl forward a port of the machine to the pod until the context ends, and returns its address.
func (c *cluster) kubectlForward(ctx context.Context, pod *corev1.Pod, port string) (local string, err error) {
	arguments := append(slices.Clone(c.kubectlFlags), "-n", pod.Namespace, "port-forward", "--address=127.0.0.1", "pod/"+pod.Name, ":"+port)
	command := exec.CommandContext(ctx, "kubectl", arguments...) //nolint:gosec // the person's own kubectl, with the person's flags
	var failure bytes.Buffer
	command.Stderr = &failure
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return "", fmt.Errorf("running kubectl port-forward: %w", err)
	}
	lines := bufio.NewReader(out)
	line, _ := lines.ReadString('\n')
	if found := forwarding.FindStringSubmatch(line); found != nil {
		go func() {
			_, _ = io.Copy(io.Discard, lines) // it writes a line for each connection
			_ = command.Wait()                // it ends with the context
		}()
		return found[1], nil
	}
	_, _ = io.Copy(io.Discard, lines)
	if err = command.Wait(); err == nil {
		err = errors.New("it ended")
	}
	return "", fmt.Errorf("forwarding port %s of the manager's pod %s, which needs the Role rollcall-status-reader: %w: %s",
		port, pod.Name, err, strings.TrimSpace(failure.String()))
}
