package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheManagerHasTheDriver starts the manager as far as one gets without a cluster: to its own errors, and to the
// driver's.
func TestTheManagerHasTheDriver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manager := filepath.Join(dir, "manager")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", manager, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the manager: %v\n%s", err, out)
	}
	for name, tc := range map[string]struct {
		registry string
		says     []string
	}{
		"unknown driver":   {"{driver: acme}", []string{"registry.driver", `"acme"`, `"toy"`, `"consul"`, `"memory"`}},
		"no directory":     {"{driver: toy}", []string{"registry.endpoint", "absolute path of a directory"}},
		"unknown option":   {"{driver: toy, endpoint: /a, options: {colour: red}}", []string{"registry.options", `"colour"`}},
		"nothing is wrong": {"{driver: toy, endpoint: " + dir + "}", []string{"no cluster: set --kubeconfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := filepath.Join(t.TempDir(), "config.yaml")
			text := "cluster: toys\nhooks: {owned: [example.com/*]}\nregistry: " + tc.registry + "\n"
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			command := exec.CommandContext(t.Context(), manager, "--config="+config)
			command.Env = []string{"HOME=" + t.TempDir()}
			out, err := command.CombinedOutput()
			if failed := new(exec.ExitError); !errors.As(err, &failed) || failed.ExitCode() != 1 {
				t.Errorf("it ended with %v, not with status 1", err)
			}
			for _, words := range tc.says {
				if !strings.Contains(string(out), words) {
					t.Errorf("it does not say %s:\n%s", words, out)
				}
			}
		})
	}
}
