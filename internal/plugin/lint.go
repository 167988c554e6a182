package plugin

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lint"
)

func (o *options) lintCommand() *cobra.Command {
	var file string
	var output *form
	c := &cobra.Command{
		Use:   "lint FILE|- | --config FILE",
		Short: "Report what in a workload or in Rollcall's configuration will not work, and why",
		Long: "Check the CloneSets, Advanced StatefulSets and Advanced DaemonSets in a file, or in standard input with -. They are checked " +
			"against the configuration of --config, else against the ConfigMap " + configMapName + " in the input, else against the " +
			"cluster's. With --config alone, only that configuration is checked.\n\n" +
			"An object without a namespace counts as one of the namespace of -n, as for kubectl apply.\n\n" +
			"A CloneSet without hooks is checked as it will be with them if its template has annotations for Rollcall, or if its namespace's " +
			"label enrolls it. The label in the input or in the cluster counts, and with enroll: true an unknown one counts as set.\n\n" +
			"The exit status is 1 if something will not work. What may be intended is a note on standard error: a handler that Rollcall " +
			"does not own may be another controller's, and another CloneSet without hooks may be enrolled later.",
		Example: "  kubectl rollcall lint web.yaml\n  kustomize build . | kubectl rollcall lint -\n  kubectl rollcall lint --config config.yaml",
		Args: func(cmd *cobra.Command, arguments []string) error {
			if file != "" && len(arguments) == 0 {
				return nil
			}
			return cobra.ExactArgs(1)(cmd, arguments)
		},
		RunE: func(cmd *cobra.Command, arguments []string) error {
			objects, err := o.readObjects(arguments...)
			if err != nil {
				return err
			}
			objects.in(*o.flags.Namespace)
			objects.labels = objects.ofInput
			if file != "" {
				text, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("reading the configuration: %w", err)
				}
				objects.configs, objects.named = append(objects.configs, written{file, text}), true
			}
			if len(objects.configs) == 0 {
				cluster, err := o.cluster()
				if err != nil {
					return err
				}
				cluster.warnOfSkew(cmd.Context())
				parsed, err := cluster.config(cmd.Context(), config.Limits{})
				if err != nil {
					return err
				}
				objects.parsed = []*config.Config{parsed}
				objects.labels = cluster.labelsAfter(cmd.Context(), objects.ofInput)
			}
			return o.printLint(objects, output)
		},
	}
	output = outputFlag(c)
	c.Flags().StringVar(&file, "config", "", "Configuration file to check against. Default: the ConfigMap in the input or the cluster.")
	return c
}

// Linted is what a program reads.
type Linted struct {
	// Workloads and Configurations are how many were checked.
	Workloads      int `json:"workloads"`
	Configurations int `json:"configurations"`
	// Findings will not work, and Notes may be meant so.
	Findings []Finding `json:"findings"`
	Notes    []Finding `json:"notes"`
}

// Finding is about an object, such as "CloneSet prod/web", or a file.
type Finding struct {
	Object  string `json:"object"`
	Message string `json:"message"`
}

func (o *options) printLint(objects *linted, output *form) error {
	findings, notes := objects.lint()
	if len(objects.configs) > 0 {
		notes = append(notes, Finding{"configuration", "options, files, maxInFlight, and whether a driver takes the other fields are not " +
			"checked here: run the manager with --check-config"})
	}
	if output.forScripts() {
		err := output.print(o.Out, Linted{
			Workloads: len(objects.workloads), Configurations: len(objects.configs),
			Findings: list(findings), Notes: list(notes),
		})
		if err != nil {
			return err
		}
	} else {
		for _, n := range notes {
			fmt.Fprintf(o.ErrOut, "%s, note: %s\n", n.Object, n.Message)
		}
		for _, f := range findings {
			fmt.Fprintf(o.Out, "%s: %s\n", f.Object, f.Message)
		}
		if len(findings) == 0 {
			fmt.Fprintln(o.Out, "no problems found in "+objects.String())
		}
	}
	if len(findings) > 0 {
		return errors.New("the lines above show what will not work")
	}
	return nil
}

// linted is what a file holds of interest.
type linted struct {
	workloads []*clusterstate.Workload
	// configs are those of the ConfigMaps, one for each installation, and behind them one that is named, which alone counts.
	configs []written
	named   bool
	// parsed are those to hold the workloads to.
	parsed []*config.Config
	// namespaces has the labels of those in the input, and labels returns those of any namespace, nil if they are not known.
	namespaces map[string]labels.Set
	labels     func(namespace string) labels.Set
	// unfit counts the CloneSets that are not meant for Rollcall and could not be enrolled.
	unfit int
}

func (l *linted) ofInput(namespace string) labels.Set { return l.namespaces[namespace] }

// of returns the configuration for workloads of a namespace: the last one that watches it, else the last one.
func (l *linted) of(namespace string) *config.Config {
	for _, c := range slices.Backward(l.parsed) {
		if namespace == "" || c.MayWatch(namespace) {
			return c
		}
	}
	return l.parsed[len(l.parsed)-1]
}

// notWatched explains what to do about a namespace that no configuration watches. Those of a file are of no installation that is known.
func (l *linted) notWatched(namespace string) error {
	c := l.of(namespace)
	if namespace == "" || c.MayWatch(namespace) {
		return nil
	}
	if len(l.configs) == 0 {
		return notWatched(c, namespace)
	}
	return fmt.Errorf("namespace %s is not among the namespaces in the configuration, so new pods would wait at the hooks: add it, or "+
		"check the workload against the configuration that has it", namespace)
}

// in gives the namespace to objects that have none, as kubectl apply does.
func (l *linted) in(namespace string) {
	for _, w := range l.workloads {
		if w.GetNamespace() == "" {
			w.SetNamespace(namespace)
		}
	}
}

// written is what a file, a ConfigMap or a manager has.
type written struct {
	name string
	text []byte
}

// readObjects reads the file that is named, if one is.
func (o *options) readObjects(names ...string) (*linted, error) {
	if len(names) == 0 {
		return &linted{}, nil
	}
	name := names[0]
	input, err := readInput(o.In, name, "what to check")
	if err != nil {
		return nil, err
	}
	if name == "-" {
		name = "standard input"
	}
	objects := &linted{namespaces: map[string]labels.Set{}}
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(input)))
	for line := 0; ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading what to check: %w", err)
		}
		before := bytes.Repeat([]byte{'\n'}, line) // so that errors have the lines of the whole input
		line += bytes.Count(text, []byte{'\n'}) + 1
		if err := objects.add(append(before, text...), metav1.TypeMeta{}); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(objects.workloads) == 0 && len(objects.configs) == 0 {
		return nil, fmt.Errorf("%s has neither a workload of %s (%s) nor the ConfigMap %s",
			name, kruisev1alpha1.GroupVersion.Group, strings.Join(clusterstate.Kinds(), ", "), configMapName)
	}
	return objects, nil
}

// add is also for an item of a list, which may leave its type to the list.
func (l *linted) add(text []byte, of metav1.TypeMeta) error {
	kind := struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`

		Items []json.RawMessage `json:"items"`
	}{TypeMeta: of}
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return fmt.Errorf("decoding an object: %w", config.YAMLError(text, err))
	}
	object := clusterstate.NewObject(kind.Kind)
	switch {
	case strings.HasSuffix(kind.Kind, "List"): // as kubectl get prints it, or CloneSetList, as an API server does
		return l.addAll(kind.Items, metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: strings.TrimSuffix(kind.Kind, "List")})
	case object != nil && strings.HasPrefix(kind.APIVersion, kruisev1alpha1.GroupVersion.Group+"/"): // Kubernetes has two of the kinds too
		decode := yaml.Unmarshal // another version has the same hooks and template, and other fields
		if kind.APIVersion == versionOf(object) {
			decode = yaml.UnmarshalStrict
		}
		if err := decode(text, object); err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, kind.Name, err)
		}
		l.workloads = append(l.workloads, clusterstate.AsWorkload(object))
	case kind.Kind == "Namespace":
		l.namespaces[kind.Name] = labels.Merge(kind.Labels, nil) // not nil: they are known
	case kind.Kind == "ConfigMap" && kind.Name == configMapName:
		var object corev1.ConfigMap
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			return fmt.Errorf("ConfigMap %s: %w", kind.Name, err)
		}
		l.configs = append(l.configs, written{"ConfigMap " + path.Join(object.Namespace, configMapName), []byte(object.Data[configKey])})
	}
	return nil
}

func (l *linted) addAll(items []json.RawMessage, of metav1.TypeMeta) error {
	for _, item := range items {
		if err := l.add(item, of); err != nil {
			return err
		}
	}
	return nil
}

// versionOf is the version that Rollcall reads of the object's kind.
func versionOf(object client.Object) string {
	if _, is := object.(*kruisev1beta1.StatefulSet); is {
		return kruisev1beta1.GroupVersion.String()
	}
	return kruisev1alpha1.GroupVersion.String()
}

// String shows what was checked, for a file without a workload too.
func (l *linted) String() string {
	checked := counted(len(l.workloads), "workload")
	if n := len(l.configs); n > 0 {
		checked += " and " + counted(n, "configuration")
	}
	if l.unfit > 0 {
		checked += fmt.Sprintf(". Without hooks, and unfit for them: %d, see the notes", l.unfit)
	}
	return checked
}

// lint returns what will not work, and what may be meant so.
func (l *linted) lint() (findings, notes []Finding) {
	for i, one := range l.configs {
		parsed, err := config.Parse(one.text, config.Limits{})
		for _, problem := range config.Joined(err) {
			findings = append(findings, Finding{one.name, problem.Error()})
		}
		if parsed != nil {
			refused, unknown := lint.Registries(parsed)
			findings, notes = append(findings, about(one.name, refused)...), append(notes, about(one.name, unknown)...)
		}
		if !l.named || i == len(l.configs)-1 {
			l.parsed = append(l.parsed, parsed)
		}
	}
	if slices.Contains(l.parsed, nil) {
		return findings, notes
	}
	for _, w := range l.workloads {
		name := w.Kind + " " + strings.TrimPrefix(w.GetNamespace()+"/"+w.GetName(), "/")
		wrong, meant := l.judge(w)
		findings, notes = append(findings, about(name, wrong)...), append(notes, about(name, meant)...)
	}
	return findings, notes
}

// judge returns what of a workload will not work, and what may be meant so.
func (l *linted) judge(w *clusterstate.Workload) (wrong, notes []string) {
	parsed, of := l.of(w.GetNamespace()), l.labels(w.GetNamespace())
	wrong = lint.Annotations(w)
	if lint.Hookless(w) {
		more, note := l.withoutHooks(w, parsed, of)
		return append(wrong, more...), []string{note}
	}
	if err := l.notWatched(w.GetNamespace()); err != nil {
		wrong = append(wrong, err.Error())
	}
	return append(wrong, lint.Workload(w, parsed, of)...), lint.Notes(w, parsed)
}

func about(object string, messages []string) (findings []Finding) {
	for _, m := range messages {
		findings = append(findings, Finding{object, m})
	}
	return findings
}

// withoutHooks shows what becomes of a workload that may get hooks later, or be none of Rollcall's business, and what will be wrong then if
// it is meant to get them.
func (l *linted) withoutHooks(w *clusterstate.Workload, c *config.Config, of labels.Set) (wrong []string, note string) {
	set, is := w.Object.(*kruisev1alpha1.CloneSet)
	if !is {
		if lint.Annotated(w) {
			wrong = lint.Description(w, c, of)
		}
		return wrong, "it has no hooks, so Rollcall leaves its pods alone until spec.lifecycle has them"
	}
	note = "it has no hooks, so Rollcall leaves its pods alone until it is enrolled"
	namespace := of
	if namespace == nil {
		namespace = labels.Set{enroll.Label: "true"} // it may be
	}
	asked := c.Enroll && enroll.Asked(set.Labels, namespace)
	switch obstacles := enroll.Obstacles(set, c, of); {
	case len(obstacles) == 0:
		return nil, note
	case asked && of == nil:
		return obstacles, note + ". With enroll: true that happens if its namespace is labelled " + enroll.Label + "=true. If it is not for " +
			"Rollcall, label it " + enroll.Label + "=false"
	case asked || lint.Annotated(w):
		return obstacles, note
	default:
		l.unfit++
		return nil, note + ", which Rollcall refuses: " + strings.Join(obstacles, "; ")
	}
}
