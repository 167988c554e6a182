package config

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/suggest"
)

// decode returns what the file says as JSON would have it, with whole numbers as int64.
func decode(data []byte) (written any, err error) {
	if err := oneDocument(data); err != nil {
		return nil, err
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	return written, json.UnmarshalCaseSensitivePreserveInts(asJSON, &written)
}

// oneDocument refuses a second YAML document, which the decoder would ignore.
func oneDocument(data []byte) error {
	documents := 0
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if documents += min(len(bytes.TrimSpace(part)), 1); documents > 1 {
			return errors.New("the file has a second document after ---: write one document")
		}
	}
}

// validator collects what is wrong.
type validator struct {
	problems field.ErrorList
	unknown  func(path string) // see [Limits]
}

func (v *validator) add(err *field.Error) {
	v.problems = append(v.problems, err)
}

// refuses reports whether something is wrong in a field of the file, or below it.
func (v *validator) refuses(name string) bool {
	return slices.ContainsFunc(v.problems, func(e *field.Error) bool {
		below, found := strings.CutPrefix(e.Field, name)
		return found && (below == "" || strings.ContainsRune(".[", rune(below[0])))
	})
}

// file is the path of what belongs to no field.
func file() *field.Path { return field.NewPath("(file)") }

func (v *validator) malformed(err error) {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	v.add(field.Invalid(file(), field.OmitValueType{}, "write valid YAML: "+text))
}

// object is an object of the file, which refuses the fields that are not read, or names them to [Limits].Unknown. What is not
// written, and null, is read as the zero value.
type object struct {
	*validator

	path   *field.Path // nil for the whole file
	fields map[string]any
	known  []string
}

// object calls read with the object at a path. An error lists its fields in the order in which read asks for them.
func (v *validator) object(path *field.Path, written any, read func(*object)) {
	fields, isObject := written.(map[string]any)
	o := &object{validator: v, path: path, fields: fields}
	before := len(v.problems)
	read(o)
	if written != nil && !isObject {
		v.problems = v.problems[:before] // of fields that can't be there
		v.wrongType(path, written, "an object with the fields "+strings.Join(o.known, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case slices.Contains(o.known, name):
		case v.unknown != nil:
			v.unknown(o.at(name).String())
		default:
			meant := suggest.Nearest(name, o.known)
			if meant != "" {
				meant = fmt.Sprintf(" (did you mean %q?)", meant)
			}
			v.add(field.Invalid(o.at(name), field.OmitValueType{}, "unknown field"+meant+"; known here: "+strings.Join(o.known, ", ")))
		}
	}
}

func (v *validator) wrongType(path *field.Path, written any, want string) {
	kind := "a number"
	switch written.(type) {
	case nil:
		kind = "null"
	case string:
		kind = "a string"
	case bool:
		kind = "a bool"
	case []any:
		kind = "an array"
	case map[string]any:
		kind = "an object"
	}
	if path == nil {
		path = file()
	}
	v.add(field.TypeInvalid(path, field.OmitValueType{}, fmt.Sprintf("this is %s: write %s", kind, want)))
}

func (o *object) at(name string) *field.Path { return o.path.Child(name) }

// required refuses a field that is not written. Where one is, and of another type, that was refused already.
func (o *object) required(name, detail string) {
	at := o.at(name)
	if !slices.ContainsFunc(o.problems, func(e *field.Error) bool { return e.Field == at.String() }) {
		o.add(field.Required(at, detail))
	}
}

func (o *object) forbidden(name, detail string) { o.add(field.Forbidden(o.at(name), detail)) }

func (o *object) invalid(name string, value any, detail string) {
	o.add(field.Invalid(o.at(name), value, detail))
}

// any returns a field as it is written, nil where it is not.
func (o *object) any(name string) any {
	o.known = append(o.known, name)
	return o.fields[name]
}

func (o *object) object(name string, read func(*object)) {
	o.validator.object(o.at(name), o.any(name), read)
}

const wantText = "a string, in quotes"

func (o *object) text(name string) string { return get[string](o, name, wantText) }
func (o *object) flag(name string) bool   { return get[bool](o, name, "true or false") }
func (o *object) mapping(name string) map[string]any {
	return get[map[string]any](o, name, "an object")
}
func (o *object) list(name string) []any { return get[[]any](o, name, "a list") }

// number returns def where nothing is written, and where it is no number.
func (o *object) number(name string, def int64) int64 {
	if n, ok := as[int64](o.validator, o.at(name), o.any(name), "a whole number, without quotes"); ok {
		return n
	}
	return def
}

func (o *object) texts(name string) []string {
	var texts []string
	for i, one := range o.list(name) {
		text, _ := as[string](o.validator, o.at(name).Index(i), one, wantText)
		texts = append(texts, text)
	}
	return texts
}

func get[T any](o *object, name, want string) T {
	value, _ := as[T](o.validator, o.at(name), o.any(name), want)
	return value
}

// as reports whether there is a value of type T, and refuses a value of another.
func as[T any](v *validator, path *field.Path, written any, want string) (value T, ok bool) {
	if value, ok = written.(T); !ok && written != nil {
		v.wrongType(path, written, want)
	}
	return value, ok
}
