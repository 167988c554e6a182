package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (v *validator) onRegistryFailure(d failureDocument) OnRegistryFailure {
	path := field.NewPath("onRegistryFailure")
	return OnRegistryFailure{
		PreDelete:     v.oneOf(path.Child("preDelete"), d.PreDelete, DefaultOnRegistryFailure, Proceed),
		InPlaceUpdate: v.oneOf(path.Child("inPlaceUpdate"), d.InPlaceUpdate, DefaultOnRegistryFailure, Proceed),
		After:         v.duration(path.Child("after"), d.After, DefaultAfter, 0),
	}
}

// oneOf reads one of a few words; nothing written is def, which is one of them.
func (v *validator) oneOf(path *field.Path, written any, def string, others ...string) string {
	if written == nil {
		return def
	}
	words := append([]string{def}, others...)
	text, isText := written.(string)
	if !isText || !slices.Contains(words, text) {
		v.add(field.NotSupported(path, fmt.Sprint(written), words))
		return def
	}
	return text
}

// percent reads a whole share from 1% to 100%; nothing written is def.
func (v *validator) percent(path *field.Path, written any, def int) int {
	if written == nil {
		return def
	}
	text, isText := written.(string)
	digits, isShare := strings.CutSuffix(text, "%")
	share, err := strconv.Atoi(digits)
	if !isText || !isShare || err != nil || share < 1 || share > 100 {
		v.add(field.Invalid(path, written, fmt.Sprintf(`write a whole share from "1%%" to "100%%", such as "%d%%"`, def)))
		return def
	}
	return share
}
