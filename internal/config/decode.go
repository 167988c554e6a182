package config

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/suggest"
)

// decode returns the file's values as JSON would have them, with whole numbers as int64.
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
			return errors.New("the file has a second document after ---: use one document")
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

// addFirst adds what is wrong with a field of which nothing else is: one of another type has no value to check.
func (v *validator) addFirst(err *field.Error) {
	if !slices.ContainsFunc(v.problems, func(e *field.Error) bool { return e.Field == err.Field }) {
		v.add(err)
	}
}

// refuses reports whether something is wrong in a field of the file, or below it.
func (v *validator) refuses(name string) bool {
	return slices.ContainsFunc(v.problems, func(e *field.Error) bool {
		below := strings.TrimPrefix(e.Field, name) // no other field begins with . or [
		return below == "" || strings.ContainsRune(".[", rune(below[0]))
	})
}

// file is the path of what belongs to no field.
func file() *field.Path { return field.NewPath("(file)") }

func (v *validator) malformed(data []byte, err error) {
	text := strings.TrimPrefix(strings.Join(strings.Fields(YAMLError(data, err).Error()), " "), "yaml: ")
	text = lineNumber.ReplaceAllString(text, "line $1 of the configuration: ") // which may be a value in another file
	v.add(field.Invalid(file(), field.OmitValueType{}, "use valid YAML: "+text))
}

var (
	lineNumber = regexp.MustCompile(`\bline (\d+): `)
	// ofParser is an error of the YAML parser, which counts lines from 0; its scanner and what decodes the values count from 1.
	ofParser = regexp.MustCompile(`\bline (\d+): did not find expected (?:key|node content|'-' indicator|',' or|<document start>)`)
)

// YAMLError returns an error of sigs.k8s.io/yaml about data with the line that is wrong: the last one where more was to come.
func YAMLError(data []byte, err error) error {
	text := err.Error()
	at := ofParser.FindStringSubmatchIndex(text)
	if at == nil {
		return err
	}
	line, _ := strconv.Atoi(text[at[2]:at[3]])
	last := bytes.Count(bytes.TrimRight(data, "\n"), []byte{'\n'}) + 1
	return fmt.Errorf("%s%d%s", text[:at[2]], min(line+1, last), text[at[3]:])
}

// object is an object of the file, which refuses the fields that are not read, or reports them to [Limits].Unknown. What is not
// written, and null, is read as the zero value.
type object struct {
	*validator

	path   *field.Path // nil for the whole file
	fields map[string]any
	known  []string
	// inForce has the value of each field that has one, by the file or by default.
	inForce map[string]any
}

// object calls read with the object at a path. An error lists its fields in the order in which read asks for them.
func (v *validator) object(path *field.Path, written any, read func(*object)) *object {
	fields, isObject := written.(map[string]any)
	o := &object{validator: v, path: path, fields: fields, inForce: map[string]any{}}
	before := len(v.problems)
	read(o)
	if written != nil && !isObject {
		v.problems = v.problems[:before] // of fields that can't be there
		v.wrongType(path, written, "an object with the fields "+strings.Join(o.known, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case slices.Contains(o.known, name):
		case v.unknown != nil && path.String() != "hooks":
			v.unknown(o.at(name).String())
		default:
			meant := suggest.Nearest(name, o.known)
			if meant != "" {
				meant = fmt.Sprintf(" (did you mean %q?)", meant)
			}
			v.add(field.Invalid(o.at(name), field.OmitValueType{}, "unknown field"+meant+"; known here: "+strings.Join(o.known, ", ")))
		}
	}
	return o
}

// effective is a file with what is in force, in the order in which the fields were read.
func (o *object) effective() ([]byte, error) {
	var text bytes.Buffer
	for _, name := range o.known {
		if value, is := o.inForce[name]; is {
			one, err := yaml.Marshal(map[string]any{name: value})
			if err != nil {
				return nil, err
			}
			text.Write(one)
		}
	}
	return text.Bytes(), nil
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
	v.add(field.TypeInvalid(path, field.OmitValueType{}, fmt.Sprintf("this is %s: use %s", kind, want)))
}

func (o *object) at(name string) *field.Path { return o.path.Child(name) }

// required refuses a field that is not written. One of another type was refused already.
func (o *object) required(name, detail string) {
	o.addFirst(field.Required(o.at(name), detail))
}

func (o *object) forbidden(name, detail string) { o.add(field.Forbidden(o.at(name), detail)) }

func (o *object) invalid(name string, value any, detail string) {
	o.add(field.Invalid(o.at(name), value, detail))
}

// any returns a field as it is written, nil if it is not.
func (o *object) any(name string) any {
	if !slices.Contains(o.known, name) {
		o.known = append(o.known, name)
	}
	return o.fields[name]
}

func (o *object) object(name string, read func(*object)) {
	if inner := o.validator.object(o.at(name), o.any(name), read); len(inner.inForce) > 0 {
		o.inForce[name] = inner.inForce
	}
}

// objects reads a list of them, each with the path that at returns.
func (o *object) objects(name string, at func(i int, written any) *field.Path, read func(i int, o *object)) {
	inForce := []any{}
	for i, one := range o.list(name) {
		inner := o.validator.object(at(i, one), one, func(o *object) { read(i, o) })
		inForce = append(inForce, inner.inForce)
	}
	if len(inForce) > 0 {
		o.inForce[name] = inForce
	}
}

// indexed returns the paths of a list's entries.
func (o *object) indexed(name string) func(int, any) *field.Path {
	return func(i int, _ any) *field.Path { return o.at(name).Index(i) }
}

const (
	wantText   = "a string, in quotes"
	wantObject = "an object"
)

func (o *object) text(name string) string { return o.textOr(name, "") }

// textOr returns def if the field is absent, or an empty text.
func (o *object) textOr(name, def string) string {
	text := cmp.Or(get(o, name, wantText, def), def)
	if o.inForce[name] = text; text == "" {
		delete(o.inForce, name)
	}
	return text
}

func (o *object) flag(name string) bool { return get(o, name, "true or false", false) }

func (o *object) number(name string, def int64) int64 {
	return get(o, name, "a whole number, without quotes", def)
}

func (o *object) mapping(name, want string) map[string]any {
	mapping := get[map[string]any](o, name, want, nil)
	if len(mapping) == 0 {
		delete(o.inForce, name)
	}
	return mapping
}

func (o *object) list(name string) []any {
	list, _ := as[[]any](o.validator, o.at(name), o.any(name), "a list")
	return list
}

func (o *object) texts(name string) []string {
	var texts []string
	for i, one := range o.list(name) {
		text, _ := as[string](o.validator, o.at(name).Index(i), one, wantText)
		texts = append(texts, text)
	}
	o.inForce[name] = append([]string{}, texts...) // none is [], not null
	return texts
}

// get returns def if the field is absent, or a value of another type.
func get[T any](o *object, name, want string, def T) T {
	value, ok := as[T](o.validator, o.at(name), o.any(name), want)
	if !ok {
		value = def
	}
	o.inForce[name] = value
	return value
}

// as reports whether there is a value of type T, and refuses a value of another.
func as[T any](v *validator, path *field.Path, written any, want string) (value T, ok bool) {
	if value, ok = written.(T); !ok && written != nil {
		v.wrongType(path, written, want)
	}
	return value, ok
}
