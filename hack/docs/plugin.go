package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rollcall-dev/rollcall/internal/plugin"
)

// pluginPage has a section for each command of the kubectl plugin. cobra/doc would write a page for each, all with kubectl's flags.
func pluginPage() string {
	root := plugin.Command()
	// What its help shows is of the machine that prints it.
	root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
	var b strings.Builder
	b.WriteString(begin("The kubectl plugin's commands",
		"The help of each command, `--help`, prints the same. [The kubectl plugin](../kubectl-plugin.md) shows how to use them."))
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			section(&b, c)
		}
	}
	fmt.Fprint(&b, "\n## Flags of all commands\n\nAll but `--rollcall-namespace` are kubectl's.\n")
	flags(&b, root.PersistentFlags())
	return b.String()
}

func section(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```text\n%s\n```\n", c.CommandPath(), cmp.Or(c.Long, c.Short+"."), c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(b, "\n```shell\n%s\n```\n", strings.Trim(c.Example, "\n"))
	}
	if c.HasAvailableLocalFlags() {
		flags(b, c.LocalFlags())
	}
}

func flags(b *strings.Builder, set *pflag.FlagSet) {
	var rows [][]string
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		row := flagRow(f.Name, value, f.DefValue, usage)
		if f.Shorthand != "" {
			row[0] = code("-"+f.Shorthand) + ", " + row[0]
		}
		rows = append(rows, row)
	})
	fmt.Fprintf(b, "\n%s", table(flagHead(), rows))
}
