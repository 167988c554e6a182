package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// form is the value of --output.
type form struct {
	name    string
	allowed []string
	// path is the template of jsonpath=TEMPLATE.
	path *jsonpath.JSONPath
}

const jsonPath = "jsonpath=TEMPLATE"

// outputFlag adds --output to a command, with the forms for scripts behind its own.
func outputFlag(c *cobra.Command, others ...string) *form {
	f := &form{allowed: append(others, "json", "yaml", jsonPath)}
	c.Flags().VarP(f, "output", "o", "Output format: "+f.forms()+".")
	return f
}

func (f *form) forms() string {
	last := len(f.allowed) - 1
	return strings.Join(f.allowed[:last], ", ") + " or " + f.allowed[last]
}

// String, Set and Type make it a flag.
func (f *form) String() string { return f.name }

// Type is what the help shows of the value.
func (f *form) Type() string { return "string" }

// Set takes one of the forms.
func (f *form) Set(name string) error {
	if template, is := strings.CutPrefix(name, "jsonpath="); is {
		f.path = jsonpath.New("output").AllowMissingKeys(true)
		if err := f.path.Parse(template); err != nil {
			return fmt.Errorf("%q is not a template such as jsonpath='{.pods[*].name}': %w", template, err)
		}
		name = jsonPath
	}
	if name != "" && !slices.Contains(f.allowed, name) || name == jsonPath && f.path == nil {
		return fmt.Errorf("must be %s", f.forms())
	}
	f.name = name
	return nil
}

// forScripts reports whether a program reads the output as a document.
func (f *form) forScripts() bool { return slices.Contains([]string{"json", "yaml", jsonPath}, f.name) }

// once refuses a watch of what a program reads.
func (f *form) once(watch bool) error {
	if watch && (f.forScripts() || f.name == "name") {
		return fmt.Errorf("--watch shows a table: remove --output %s", f.name)
	}
	return nil
}

// print writes a value for a program.
func (f *form) print(out io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	switch {
	case err != nil:
	case f.name == "yaml":
		text, err = yaml.JSONToYAML(text)
	case f.name == jsonPath:
		text, err = f.chosen(text)
	}
	if err != nil {
		return fmt.Errorf("encoding the output: %w", err)
	}
	if f.name != jsonPath { // as kubectl: the template has what line breaks there are
		text = append(text, '\n')
	}
	_, err = out.Write(text)
	return err
}

// chosen is what the template chooses of a document.
func (f *form) chosen(document []byte) ([]byte, error) {
	var read any
	var text bytes.Buffer
	err := json.Unmarshal(document, &read)
	if err == nil {
		err = f.path.Execute(&text, read)
	}
	return text.Bytes(), err
}

// list is one for a program, which is not null if it has no item.
func list[T any](all []T) []T { return append([]T{}, all...) }

// oneName refuses any other number of arguments than one, and shows what to type.
func oneName(of string) cobra.PositionalArgs {
	return func(c *cobra.Command, arguments []string) error {
		if len(arguments) == 1 {
			return nil
		}
		example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
		return fmt.Errorf("set the name of one %s, such as: %s", of, example)
	}
}
