package config

import (
	gojson "encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/service"
)

// allowanceDocument is one entry of service.allowed. Each is decoded by itself, since the decoder's errors leave out the
// index of a list.
type allowanceDocument struct {
	Namespaces        []string          `json:"namespaces"`
	NamespaceSelector *selectorDocument `json:"namespaceSelector"`
	Names             []string          `json:"names"`
}

// selectorDocument is a Kubernetes label selector.
type selectorDocument struct {
	MatchLabels      map[string]string     `json:"matchLabels"`
	MatchExpressions []requirementDocument `json:"matchExpressions"`
}

type requirementDocument struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// allowed reads the policy; nothing written is none, which allows every name.
func (v *validator) allowed(path *field.Path, written []gojson.RawMessage) service.Policy {
	if written == nil {
		return nil
	}
	if len(written) == 0 {
		v.add(field.Required(path, "list which namespaces may use which names, or remove the field to allow all"))
	}
	policy := make(service.Policy, 0, len(written))
	for i, raw := range written {
		at := path.Index(i)
		var d allowanceDocument
		problems, ok := unmarshal(raw, &d, at)
		if v.problems = append(v.problems, problems...); ok {
			policy = append(policy, v.allowance(at, d))
		}
	}
	return policy
}

func (v *validator) allowance(path *field.Path, d allowanceDocument) service.Allowance {
	if len(d.Namespaces) == 0 && d.NamespaceSelector == nil {
		v.add(field.Required(path.Child("namespaces"), `choose namespaces by their names ("*" for all), or by their labels with `+
			"namespaceSelector"))
	}
	if len(d.Names) == 0 {
		v.add(field.Required(path.Child("names"), `list the service names for these namespaces, such as "payments" or "{namespace}.*"`))
	}
	return service.Allowance{
		Namespaces: parseAll(v, path.Child("namespaces"), d.Namespaces, service.ParseNamespacePattern),
		Selector:   v.selector(path.Child("namespaceSelector"), d.NamespaceSelector),
		Names:      parseAll(v, path.Child("names"), d.Names, service.ParseNamePattern),
	}
}

func parseAll[T any](v *validator, path *field.Path, written []string, parse func(string) (T, error)) []T {
	var all []T
	for i, text := range written {
		one, err := parse(text)
		if err != nil {
			v.add(field.Invalid(path.Index(i), text, err.Error()))
		}
		all = append(all, one)
	}
	return all
}

// selector reads a label selector; nothing written is nil.
func (v *validator) selector(path *field.Path, d *selectorDocument) labels.Selector {
	if d == nil {
		return nil
	}
	if len(d.MatchLabels)+len(d.MatchExpressions) == 0 {
		v.add(field.Required(path, `write matchLabels or matchExpressions; for all namespaces write namespaces: ["*"]`))
		return nil
	}
	written := &metav1.LabelSelector{MatchLabels: d.MatchLabels}
	for _, r := range d.MatchExpressions {
		written.MatchExpressions = append(written.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: r.Key, Operator: metav1.LabelSelectorOperator(r.Operator), Values: r.Values,
		})
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	if problems := metav1validation.ValidateLabelSelector(written, options, path); len(problems) > 0 {
		v.problems = append(v.problems, problems...)
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(written)
	if err != nil {
		v.add(field.Invalid(path, field.OmitValueType{}, err.Error()))
	}
	return selector
}
