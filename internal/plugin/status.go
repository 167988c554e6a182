package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"
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
			pods, err := cluster.pods(cmd.Context(), w, options...)
			if err != nil {
				return err
			}
			return o.printStatus(pods, output, all, w.now)
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

func (o *options) printStatus(pods []Pod, output string, all bool, now time.Time) error {
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
	return printTable(o.Out, pods, output == "wide", all, now)
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

func printTable(out io.Writer, pods []Pod, wide, all bool, now time.Time) error {
	table := printers.GetNewTabWriter(out)
	head := "NAME\tSTATE\tAGE\tREADY\tROTATION\tWAITS AT\tREASON"
	if all {
		head = "NAMESPACE\t" + head
	}
	if wide {
		head += "\tWORKLOAD\tINSTANCES\tMESSAGE"
	}
	fmt.Fprintln(table, head)
	for _, p := range pods {
		if all {
			fmt.Fprintf(table, "%s\t", p.Namespace)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%t\t%s\t%s\t%s",
			p.Name, dash(p.State), p.age(now), p.Ready, p.Rotation, dash(string(p.Hook)), dash(string(p.Reason)))
		if wide {
			fmt.Fprintf(table, "\t%s\t%d\t%s", dash(p.Workload), len(p.Instances), dash(p.Message))
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing the pods: %w", err)
	}
	return nil
}

// age is how long the pod has been in its state.
func (p Pod) age(now time.Time) string {
	if p.Since == nil {
		return "-"
	}
	return short(now.Sub(p.Since.Time))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
