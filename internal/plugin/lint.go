package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

func (o *options) lintCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "lint FILE|-",
		Short: "Say what in a CloneSet, or in Rollcall's configuration, will not work and why",
		Long: "Reads CloneSets and the ConfigMap " + configMapName + " from a file, or from the standard input. It holds the CloneSets " +
			"to the configuration that stands beside them, else to --config, else to that of the cluster. It fails where something " +
			"will not work.",
		Example: "  kubectl rollcall lint web.yaml\n  kustomize build . | kubectl rollcall lint -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			objects, err := o.readObjects(arguments[0])
			if err != nil {
				return err
			}
			if file != "" {
				text, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("reading the configuration: %w", err)
				}
				objects.config, objects.configName = text, file
			}
			if objects.config == nil {
				cluster, err := o.cluster()
				if err != nil {
					return err
				}
				if objects.parsed, err = cluster.config(cmd.Context()); err != nil {
					return err
				}
			}
			findings := objects.lint()
			for _, f := range findings {
				fmt.Fprintln(o.Out, f)
			}
			if len(findings) > 0 {
				return errors.New("the lines above say what will not work")
			}
			fmt.Fprintf(o.Out, "%d CloneSets: nothing found\n", len(objects.cloneSets))
			return nil
		},
	}
	c.Flags().StringVar(&file, "config", "", "The manager's configuration file; without it the ConfigMap, in the input or the cluster.")
	return c
}

// linted is what a file holds of interest.
type linted struct {
	cloneSets  []*kruisev1alpha1.CloneSet
	config     []byte
	configName string
	parsed     *config.Config
}

func (o *options) readObjects(name string) (*linted, error) {
	in := o.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading what to check: %w", err)
		}
		defer file.Close()
		in = file
	}
	objects := &linted{}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading what to check: %w", err)
		}
		if err := objects.add(text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(objects.cloneSets) == 0 && objects.config == nil {
		return nil, fmt.Errorf("%s has neither a CloneSet nor the ConfigMap %s", name, configMapName)
	}
	return objects, nil
}

func (l *linted) add(text []byte) error {
	var kind struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return fmt.Errorf("decoding an object: %w", err)
	}
	switch {
	case kind.Kind == "CloneSet":
		var set kruisev1alpha1.CloneSet
		if err := yaml.UnmarshalStrict(text, &set); err != nil {
			return fmt.Errorf("CloneSet %s: %w", kind.Name, err)
		}
		l.cloneSets = append(l.cloneSets, &set)
	case kind.Kind == "ConfigMap" && kind.Name == configMapName:
		var object corev1.ConfigMap
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			return fmt.Errorf("ConfigMap %s: %w", kind.Name, err)
		}
		l.config, l.configName = []byte(object.Data[configKey]), "ConfigMap "+configMapName
	}
	return nil
}

// lint returns a line for each thing that will not work.
func (l *linted) lint() []string {
	if l.config != nil {
		parsed, err := parseConfig(l.config)
		if err != nil {
			return []string{l.configName + ": " + err.Error()}
		}
		l.parsed = parsed
	}
	var findings []string
	for _, set := range l.cloneSets {
		for _, f := range lintCloneSet(set, l.parsed) {
			findings = append(findings, fmt.Sprintf("CloneSet %s: %s", strings.TrimPrefix(set.Namespace+"/"+set.Name, "/"), f))
		}
	}
	return findings
}

func lintCloneSet(set *kruisev1alpha1.CloneSet, c *config.Config) []string {
	hooks := lifecycle.HooksOf(clusterstate.AsLifecycle(set), c.Hooks)
	if hooks.Foreign || !hooks.Any() {
		return []string{fmt.Sprintf("no hook has a handler that hooks.owned claims (%s): Rollcall leaves its pods alone",
			strings.Join(c.Hooks.Owned, ", "))}
	}
	var findings []string
	for _, r := range hooks.Refused {
		findings = append(findings, r.Why)
	}
	template := set.Spec.Template
	for _, h := range hooks.PreNormal {
		switch {
		case h.Finalizer != "":
			findings = append(findings, fmt.Sprintf("preNormal waits for finalizer %s, and OpenKruise up to 1.8.4 can miss that it was "+
				"added: use a label in spec.lifecycle.preNormal.labelsHandler", h.Finalizer))
		case template.Labels[h.Label] == h.Value:
			findings = append(findings, fmt.Sprintf("the template sets label %s=%s, so preNormal waits for nothing: remove it from "+
				"spec.template.metadata.labels", h.Label, h.Value))
		}
	}
	if template.Annotations[lifecycle.AnnotationSkip] != "" {
		findings = append(findings, fmt.Sprintf("the template has annotation %s, which releases the hooks of every pod: remove it",
			lifecycle.AnnotationSkip))
	}
	return append(findings, lintDescription(set, c)...)
}

// lintDescription holds what the template says of itself to what the manager accepts.
func lintDescription(set *kruisev1alpha1.CloneSet, c *config.Config) []string {
	template := set.Spec.Template
	subject := service.Subject{
		Namespace: set.Namespace, Workload: set.Name, Labels: template.Labels, Annotations: template.Annotations, Spec: &template.Spec,
	}
	_, endpointsErr := c.Service.EndpointsOf(subject)
	_, attributesErr := c.Service.AttributesOf(subject)
	_, registriesErr := service.RegistriesOf(template.Annotations, c.DefaultRegistries, c.RegistryNames())
	_, byErr := service.RegisteredByApp(template.Annotations, false)
	_, drainErr := service.DrainOf(template.Annotations, c.Drain)
	var findings []string
	for _, err := range []error{endpointsErr, attributesErr, registriesErr, byErr, drainErr} {
		if err != nil {
			findings = append(findings, strings.Split(err.Error(), "\n")...)
		}
	}
	return slices.Compact(findings)
}
