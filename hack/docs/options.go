package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	gotypes "go/types"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

const (
	driverPages = "../../docs/drivers"
	root        = "../.."

	optionsBegin = "<!-- options: "
	optionsEnd   = "<!-- /options -->"
	noOptions    = "There are none.\n"
)

// fillOptions writes the options of each driver into its page.
func fillOptions() error {
	pages, err := filepath.Glob(filepath.Join(driverPages, "*.md"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := fillPage(page); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(page), err)
		}
	}
	return nil
}

func fillPage(path string) error {
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after, err := withOptions(string(before), optionsOf)
	if err != nil || after == string(before) {
		return err
	}
	return write(path, after)
}

// asked matches the two lines that ask for the options of a folder, with what stands between them.
var asked = regexp.MustCompile(`(?s)` + optionsBegin + `(\S+) -->\n.*?` + optionsEnd)

// withOptions puts the options of a folder between the two lines that ask for them.
func withOptions(text string, optionsOf func(folder string) (string, error)) (string, error) {
	if pairs := len(asked.FindAllString(text, -1)); strings.Count(text, optionsBegin) != pairs || strings.Count(text, optionsEnd) != pairs {
		return "", fmt.Errorf("set %q before options and %q after them, each time both", optionsBegin+"FOLDER -->", optionsEnd)
	}
	var failed error
	filled := asked.ReplaceAllStringFunc(text, func(old string) string {
		folder := asked.FindStringSubmatch(old)[1]
		options, err := optionsOf(folder)
		failed = errors.Join(failed, err)
		return fmt.Sprintf("%s%s -->\n\n%s\n%s", optionsBegin, folder, options, optionsEnd)
	})
	if failed != nil {
		return "", failed
	}
	return filled, nil
}

// optionsOf reads the struct Options of the driver in a folder of the module, if there is one.
func optionsOf(folder string) (string, error) {
	types, err := typesOf(filepath.Join(root, filepath.FromSlash(folder)))
	if err != nil {
		return "", err
	}
	options, err := types.options()
	if err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	return options, nil
}

// packageTypes are the types of one package, by name.
type packageTypes map[string]ast.Expr

func typesOf(folder string) (packageTypes, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no Go code", folder)
	}
	types := packageTypes{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		types.add(file)
	}
	return types, nil
}

func (types packageTypes) add(file *ast.File) {
	for node := range ast.Preorder(file) {
		if named, ok := node.(*ast.TypeSpec); ok {
			types[named.Name.Name] = named.Type
		}
	}
}

func (types packageTypes) options() (string, error) {
	options, ok := types["Options"].(*ast.StructType)
	if !ok {
		return noOptions, nil
	}
	rows, err := types.optionRows(options)
	if err != nil {
		return "", fmt.Errorf("options: %w", err)
	}
	if len(rows) == 0 {
		return noOptions, nil
	}
	return table([]string{"option", "type", "default", "what it does"}, rows), nil
}

// optionRows has a row for each field that the configuration can set.
func (types packageTypes) optionRows(options *ast.StructType) ([][]string, error) {
	var rows [][]string
	for _, field := range options.Fields.List {
		if len(field.Names) != 1 {
			return nil, errors.New("write each with one name of its own")
		}
		if !field.Names[0].IsExported() {
			continue
		}
		row, err := types.fieldRow(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.Names[0], err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (types packageTypes) fieldRow(field *ast.Field) ([]string, error) {
	name := jsonName(field)
	if name == "" {
		return nil, errors.New("write its JSON name as a tag, for what the configuration calls it")
	}
	kind := types.kindOf(field.Type)
	if kind == "" {
		return nil, errors.New("its type has no name here yet: add it to the generator")
	}
	means, def, err := optionComment(field)
	if err != nil {
		return nil, err
	}
	return []string{code(name), kind, def, means}, nil
}

func jsonName(field *ast.Field) string {
	if field.Tag == nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
	return name
}

// kindOf says what to write for a value of a type, empty where that isn't known.
func (types packageTypes) kindOf(expr ast.Expr) string {
	switch t := expr.(type) {
	case *ast.StarExpr:
		return types.kindOf(t.X)
	case *ast.StructType:
		return "object"
	case *ast.Ident:
		if named := types[t.Name]; named != nil {
			return types.kindOf(named)
		}
	}
	const whole = "whole number"
	return map[string]string{
		"string": "text", "bool": "true or false", "float32": "number", "float64": "number",
		"int": whole, "int32": whole, "int64": whole, "uint": whole, "uint16": whole, "uint32": whole, "uint64": whole,
		"driverkit.Duration": "duration",
	}[gotypes.ExprString(expr)]
}

// optionComment reads a field's comment: "Name is what it does. Default: what holds without it."
func optionComment(field *ast.Field) (means, def string, err error) {
	name := field.Names[0].Name
	text := strings.Join(strings.Fields(field.Doc.Text()), " ")
	text, named := strings.CutPrefix(text, name+" ")
	text, def, both := strings.Cut(text, " Default: ")
	if !named || !both {
		return "", "", fmt.Errorf("write its comment as %q", name+" … Default: ….")
	}
	text = strings.TrimPrefix(text, "is ")
	def = strings.TrimSuffix(def, ".")
	if def != "required" && !strings.Contains(def, " ") {
		def = code(def) // what one would write there
	}
	return sentence(text), def, nil
}
