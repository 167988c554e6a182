// Package httpregistry speaks the HTTP registry protocol (docs/http-registry.openapi.yaml), so that any team can put its
// own registry behind a few endpoints in any language.
package httpregistry
