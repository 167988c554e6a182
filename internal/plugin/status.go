package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

func (o *options) statusCommand() *cobra.Command {
	var all bool
	var output, selector string
	c := &cobra.Command{
		Use:   "status",
		Short: "List the pods that Rollcall manages, those that wait first",
		Example: "  kubectl rollcall status\n  kubectl rollcall status -A -o wide\n" +
			"  kubectl rollcall status -l app=web -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch output {
			case "", "wide", "json", "yaml":
			default:
				return fmt.Errorf("--output %q: write wide, json or yaml", output)
			}
			options, err := o.listOptions(all, selector)
			if err != nil {
				return err
			}
			cluster, err := o.cluster()
			if err != nil {
				return err
			}
			namespace := (&client.ListOptions{}).ApplyOptions(options).Namespace
			w, err := cluster.world(cmd.Context(), namespace, o)
			if err != nil {
				return err
			}
			pods, err := cluster.managed(cmd.Context(), w, options...)
			if err != nil {
				return err
			}
			registries := cluster.known(cmd.Context(), namespace, o)
			for i := range pods {
				pods[i].Entries = registries.pods[pods[i].facts.pod.UID]
			}
			return o.printStatus(pods, registries.why, output, all, w.now)
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "List the pods of all namespaces.")
	c.Flags().StringVarP(&output, "output", "o", "", "The form of the output: wide, json or yaml.")
	c.Flags().StringVarP(&selector, "selector", "l", "", "Only pods with these labels, such as app=web.")
	return c
}

func (o *options) listOptions(all bool, selector string) ([]client.ListOption, error) {
	var list []client.ListOption
	if !all {
		namespace, err := o.namespace()
		if err != nil {
			return nil, err
		}
		list = append(list, client.InNamespace(namespace))
	}
	if selector != "" {
		parsed, err := parseSelector(selector)
		if err != nil {
			return nil, err
		}
		list = append(list, parsed)
	}
	return list, nil
}

func (o *options) printStatus(pods []Pod, unknown error, output string, all bool, now time.Time) error {
	if output == "json" || output == "yaml" {
		return printObjects(o.Out, pods, output)
	}
	if len(pods) == 0 {
		where := "in this namespace; -A looks at all"
		if all {
			where = "in the cluster: give a CloneSet hooks whose keys hooks.owned has"
		}
		fmt.Fprintln(o.ErrOut, "Rollcall manages no pod", where)
		return nil
	}
	on := terminalOf(o.Out)
	if output == "wide" {
		on.width = 0 // a person asked for all of it
	}
	statusTable(pods, unknown == nil, output == "wide", all, now).write(o.Out, on)
	if unknown != nil {
		fmt.Fprintf(o.ErrOut, "REGISTRY is not shown: %v\n", unknown)
	}
	return nil
}

func printObjects(out io.Writer, pods []Pod, output string) error {
	if pods == nil {
		pods = []Pod{}
	}
	text, err := json.MarshalIndent(pods, "", "  ")
	if err == nil && output == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("encoding the pods: %w", err)
	}
	fmt.Fprintln(out, string(text))
	return nil
}

// statusTable has a row for each pod, with what the registries say where that is known.
func statusTable(pods []Pod, known, wide, all bool, now time.Time) table {
	t := table{spare: []string{"READY", "AGE", "ROTATION", "WAITS AT"}, rows: make([]row, len(pods))}
	for i, p := range pods {
		t.rows[i].tone = p.tone()
	}
	for _, column := range []struct {
		head string
		is   bool
		cell func(Pod) string
	}{
		{"NAMESPACE", all, func(p Pod) string { return p.Namespace }},
		{"NAME", true, func(p Pod) string { return p.Name }},
		{"STATE", true, func(p Pod) string { return dash(p.State) }},
		{"AGE", true, func(p Pod) string { return p.age(now) }},
		{"READY", true, func(p Pod) string { return strconv.FormatBool(p.Ready) }},
		{"ROTATION", true, func(p Pod) string { return string(p.Rotation) }},
		{"REGISTRY", known, func(p Pod) string { return registryOf(p.Entries) }},
		{"WAITS AT", true, func(p Pod) string { return dash(string(p.Hook)) }},
		{"REASON", true, func(p Pod) string { return dash(string(p.Reason)) }},
		{"WORKLOAD", wide, func(p Pod) string { return dash(p.Workload) }},
		{"INSTANCES", wide, func(p Pod) string { return strconv.Itoa(len(p.Instances)) }},
		{"MESSAGE", wide, func(p Pod) string { return dash(p.Message) }},
	} {
		if column.is {
			t.head = append(t.head, column.head)
			for i, p := range pods {
				t.rows[i].cells = append(t.rows[i].cells, column.cell(p))
			}
		}
	}
	return t
}

// age is how long the pod has been in its state.
func (p Pod) age(now time.Time) string {
	if p.Since == nil {
		return "-"
	}
	return short(now.Sub(p.Since.Time))
}
