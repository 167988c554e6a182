module github.com/rollcall-dev/rollcall/hack/release

go 1.26.8

require (
	github.com/CycloneDX/cyclonedx-go v0.12.0
	sigs.k8s.io/yaml v1.6.0
)

require go.yaml.in/yaml/v2 v2.4.2 // indirect
