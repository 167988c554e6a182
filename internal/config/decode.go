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
	Cluster           string                       `json:"cluster"`
	Namespaces        []string                     `json:"namespaces"`
	Registry          *registryDocument            `json:"registry"`
	Registries        map[string]gojson.RawMessage `json:"registries"`
	DefaultRegistries []string                     `json:"defaultRegistries"`
	Hooks             hooksDocument                `json:"hooks"`
	Service           serviceDocument              `json:"service"`
	Drain             any                          `json:"drain"`
	Unready           any                          `json:"unready"`
	PanicThreshold    any                          `json:"panicThreshold"`
	Resync            resyncDocument               `json:"resync"`
	OnRegistryFailure failureDocument              `json:"onRegistryFailure"`
	Guard             any                          `json:"guard"`
}

// registryDocument is one registry. Those with a name are decoded one by one, since the decoder's errors leave out the
// key of a map.
type registryDocument struct {
	Driver   string            `json:"driver"`
	Endpoint string            `json:"endpoint"`
	TLS      tlsDocument       `json:"tls"`
	Auth     authDocument      `json:"auth"`
	Timeout  any               `json:"timeout"`
	InFlight *int              `json:"maxInFlight"`
	Options  gojson.RawMessage `json:"options"`
}

type tlsDocument struct {
	CAFile   string `json:"caFile"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
}

type authDocument struct {
	TokenFile    string `json:"tokenFile"`
	Username     string `json:"username"`
	PasswordFile string `json:"passwordFile"`
}

type hooksDocument struct {
	Owned        []string `json:"owned"`
	NewlyCreated []string `json:"newlyCreated"`
}

type serviceDocument struct {
	Name                   string                       `json:"name"`
	Port                   *int                         `json:"port"`
	SharedAcrossNamespaces bool                         `json:"sharedAcrossNamespaces"`
	Allowed                []gojson.RawMessage          `json:"allowed"`
	Metadata               map[string]gojson.RawMessage `json:"metadata"`
}

type resyncDocument struct {
	Interval    any `json:"interval"`
	MaxRemovals any `json:"maxRemovals"`
}

type failureDocument struct {
	PreDelete     any `json:"preDelete"`
	InPlaceUpdate any `json:"inPlaceUpdate"`
	After         any `json:"after"`
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
	problems, ok := unmarshal(asJSON, &doc, nil)
	if !ok {
		return nil, problems
	}
	return &doc, problems
}

// unmarshal decodes what stands at a path of the file, nil for all of it. Without ok nothing more can be said of it.
func unmarshal(data []byte, into any, at *field.Path) (problems field.ErrorList, ok bool) {
	known := reflect.TypeOf(into).Elem()
	strict, err := json.UnmarshalStrict(data, into)
	if err != nil {
		return field.ErrorList{wrongType(err, known, at)}, false
	}
	for _, err := range strict {
		problems = append(problems, unknownField(err, known, at))
	}
	return problems, true
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

// whole is the path of what belongs to no field.
func whole(at *field.Path) *field.Path {
	if at == nil {
		return field.NewPath("(file)")
	}
	return at
}

func malformed(err error) *field.Error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "yaml: ")
	return field.Invalid(whole(nil), field.OmitValueType{}, "write valid YAML: "+text)
}

func wrongType(err error, known reflect.Type, at *field.Path) *field.Error {
	var wrong *gojson.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return malformed(err)
	}
	switch {
	case wrong.Field != "":
		at = at.Child(wrong.Field)
	case known.Kind() == reflect.Struct:
		return field.TypeInvalid(whole(at), field.OmitValueType{}, "write an object with the fields "+fieldsOf(known, ""))
	}
	return field.TypeInvalid(at, field.OmitValueType{},
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

func unknownField(err error, known reflect.Type, at *field.Path) *field.Error {
	var unknown json.FieldError
	if !errors.As(err, &unknown) {
		return malformed(err)
	}
	path := unknown.FieldPath()
	parent := ""
	if dot := strings.LastIndexByte(path, '.'); dot >= 0 {
		parent = path[:dot]
	}
	return field.Invalid(at.Child(path), field.OmitValueType{}, "unknown field; known here: "+fieldsOf(known, parent))
}

// fieldsOf lists the fields of the object at a path below one of a known type.
func fieldsOf(at reflect.Type, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		at = objectAt(at, name)
	}
	var names []string
	for f := range at.Fields() {
		names = append(names, f.Tag.Get("json"))
	}
	return strings.Join(names, ", ")
}

// objectAt returns the type of the object in a field, or of those in a list's. Where there is none it stays: a key may
// hold a dot.
func objectAt(parent reflect.Type, name string) reflect.Type {
	name, _, _ = strings.Cut(name, "[")
	for f := range parent.Fields() {
		if f.Tag.Get("json") != name {
			continue
		}
		at := f.Type
		if at.Kind() == reflect.Pointer || at.Kind() == reflect.Slice {
			at = at.Elem()
		}
		if at.Kind() == reflect.Struct {
			return at
		}
	}
	return parent
}
