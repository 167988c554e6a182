// Package httpregistry speaks the HTTP registry protocol (docs/http-registry.openapi.yaml), so that any team can put its
// own registry behind four endpoints in any language.
package httpregistry
