package config

import (
	"bufio"
	"bytes"
	gojson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// document is the file as it is written. What needs a better message than the decoder's is decoded as any, and checked
// with the rest.
type document struct {
	Cluster    string           `json:"cluster"`
	Namespaces []string         `json:"namespaces"`
	Registry   registryDocument `json:"registry"`
	Hooks      hooksDocument    `json:"hooks"`
	Service    serviceDocument  `json:"service"`
	Drain      any              `json:"drain"`
}

type registryDocument struct {
	Driver   string            `json:"driver"`
	Endpoint string            `json:"endpoint"`
	TLS      tlsDocument       `json:"tls"`
	Auth     authDocument      `json:"auth"`
	Timeout  any               `json:"timeout"`
	Options  gojson.RawMessage `json:"options"`
}

type tlsDocument struct {
	CAFile string `json:"caFile"`
}

type authDocument struct {
	TokenFile string `json:"tokenFile"`
}

type hooksDocument struct {
	Owned        []string `json:"owned"`
	NewlyCreated []string `json:"newlyCreated"`
}

type serviceDocument struct {
	Name                   string `json:"name"`
	Port                   *int   `json:"port"`
	SharedAcrossNamespaces bool   `json:"sharedAcrossNamespaces"`
}

// decode returns nil where nothing further can be checked.
func decode(data []byte) (*document, field.ErrorList) {
	if err := oneDocument(data); err != nil {
		return nil, field.ErrorList{malformed(err)}
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, field.ErrorList{malformed(err)}
	}
	var doc document
	strict, err := json.UnmarshalStrict(asJSON, &doc)
	if err != nil {
		return nil, field.ErrorList{wrongType(err)}
	}
	var problems field.ErrorList
	for _, err := range strict {
		problems = append(problems, unknownField(err))
	}
	return &doc, problems
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
			return errors.New("there is a second document after ---, and only one is read")
		}
	}
}

func malformed(err error) *field.Error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	return field.Invalid(field.NewPath("(file)"), field.OmitValueType{}, "write valid YAML: "+text)
}

func wrongType(err error) *field.Error {
	var wrong *gojson.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return malformed(err)
	}
	if wrong.Field == "" {
		return field.TypeInvalid(field.NewPath("(file)"), field.OmitValueType{}, "write an object with the fields "+fieldsOf(""))
	}
	return field.TypeInvalid(field.NewPath(wrong.Field), field.OmitValueType{},
		fmt.Sprintf("this is %s: write %s", article(wrong.Value), kindOf(wrong.Type)))
}

func article(value string) string {
	if strings.HasPrefix(value, "array") || strings.HasPrefix(value, "object") {
		return "an " + value
	}
	return "a " + value
}

func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string, in quotes"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number, without quotes"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

func unknownField(err error) *field.Error {
	var at json.FieldError
	if !errors.As(err, &at) {
		return malformed(err)
	}
	path := at.FieldPath()
	parent := ""
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		parent = path[:dot]
	}
	return field.Invalid(field.NewPath(path), field.OmitValueType{}, "unknown field; known here: "+fieldsOf(parent))
}

// fieldsOf lists the fields of the object at a path of the document.
func fieldsOf(path string) string {
	at := reflect.TypeFor[document]()
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		for f := range at.Fields() {
			if f.Tag.Get("json") == name {
				at = f.Type
				break
			}
		}
	}
	var names []string
	for f := range at.Fields() {
		names = append(names, f.Tag.Get("json"))
	}
	return strings.Join(names, ", ")
}
