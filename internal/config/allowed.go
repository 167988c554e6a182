package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/service"
)

// allowed reads the policy; nothing written is none, which allows every name.
func (o *object) allowed(name string) service.Policy {
	written := o.list(name)
	if written == nil {
		return nil
	}
	if len(written) == 0 {
		o.required(name, "list which namespaces may use which names, or remove the field to allow all")
	}
	policy := make(service.Policy, len(written))
	o.objects(name, o.indexed(name), func(i int, o *object) { policy[i] = o.allowance() })
	return policy
}

func (o *object) allowance() service.Allowance {
	a := o.namespacesChosen()
	a.Names, a.Shared = parseAll(o, "names", service.ParseNamePattern), o.flag("shared")
	if len(a.Names) == 0 {
		o.required("names", `list the service names for these namespaces, such as "payments" or "{namespace}.*"`)
	}
	return a
}

// namespacesChosen chooses by name, or by labels.
func (o *object) namespacesChosen() service.Allowance {
	a := service.Allowance{
		Namespaces: parseAll(o, "namespaces", service.ParseNamespacePattern), Selector: o.selector("namespaceSelector", `set namespaces: ["*"]`),
	}
	if len(a.Namespaces) == 0 && o.fields["namespaceSelector"] == nil {
		o.required("namespaces", `choose namespaces by their names ("*" for all), or by their labels with namespaceSelector`)
	}
	return a
}

func parseAll[T any](o *object, name string, parse func(string) (T, error)) []T {
	var all []T
	for i, text := range o.texts(name) {
		one, err := parse(text)
		if err != nil {
			o.addFirst(field.Invalid(o.at(name).Index(i), text, err.Error()))
		}
		all = append(all, one)
	}
	return all
}

// selector reads a label selector; nothing written is nil. An empty one is an error: for all namespaces there is another way.
func (o *object) selector(name, forAll string) labels.Selector {
	written := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	o.object(name, func(o *object) {
		for key, value := range o.mapping("matchLabels", wantObject) {
			written.MatchLabels[key], _ = as[string](o.validator, o.at("matchLabels").Key(key), value, wantText)
		}
		o.objects("matchExpressions", o.indexed("matchExpressions"), func(_ int, o *object) {
			written.MatchExpressions = append(written.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: o.text("key"), Operator: metav1.LabelSelectorOperator(o.text("operator")), Values: o.texts("values"),
			})
		})
	})
	if o.fields[name] == nil {
		return nil
	}
	if len(written.MatchLabels)+len(written.MatchExpressions) == 0 {
		o.required(name, "use matchLabels or matchExpressions; for all namespaces, "+forAll)
		return nil
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	if problems := metav1validation.ValidateLabelSelector(written, options, o.at(name)); len(problems) > 0 {
		o.problems = append(o.problems, problems...)
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(written)
	if err != nil {
		o.invalid(name, field.OmitValueType{}, err.Error())
	}
	return selector
}
