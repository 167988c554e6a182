// Command release makes in dist/ what a release of Rollcall has: the manager and the plugin for each platform, the Helm
// chart, install.yaml, the plugin's manifest for krew, SBOMs, the provenance and checksums. The same commit and version
// give the same bytes, on any machine with the same Go. The notes are in bin/. It is a module of its own, since the form of an SBOM is
// needed for nothing else.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

const (
	project    = "rollcall-dev/rollcall"
	repository = "https://github.com/" + project
	image      = "ghcr.io/" + project
	// cas is the module from which hack/cas takes the CAs of the image.
	cas = "golang.org/x/crypto/x509roots/fallback"
)

var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func main() {
	version := flag.String("version", "", "the version to release, such as v1.2.3")
	out := flag.String("out", "dist", "the folder to fill; it must not exist")
	only := flag.String("platforms", "", "leave out all platforms but these, such as \"linux/amd64 linux/arm64\"; empty leaves out none")
	flag.Parse()
	if err := run(*version, *out, strings.Fields(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version, out string, only []string) error {
	if !semver.MatchString(version) {
		return fmt.Errorf("version %q: write vMAJOR.MINOR.PATCH, such as VERSION=v1.2.3", version)
	}
	commit, err := output("git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	r := release{version: version, out: out, only: only, commit: strings.TrimSpace(commit), of: os.Getenv("GITHUB_REPOSITORY")}
	if err := r.notes(); err != nil {
		return err
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		return fmt.Errorf("making the folder of the release: %w; remove it first", err)
	}
	for _, step := range []func() error{r.binaries, r.chart, r.manifests, r.krew, r.provenance, r.checksums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

type release struct {
	version, out, commit string
	// only are the platforms to release for, where not for all.
	only []string
	// of is the fork that releases, OWNER/NAME; empty is the project itself.
	of string
}

// own has a text lead to the fork that releases, if it is one: to its pages, files, image and chart.
func (r release) own(text []byte) []byte {
	fork := strings.ToLower(r.of)
	owner, _, isFork := strings.Cut(fork, "/")
	if !isFork || fork == project {
		return text
	}
	const charts = "ghcr.io/rollcall-dev/charts"
	return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(project), []byte(fork)), []byte(charts), []byte("ghcr.io/"+owner+"/charts"))
}

// platforms are those of the manager, and of the kubectl plugin, which people run elsewhere too.
func (r release) platforms(binary string) []string {
	all := []string{"linux/amd64", "linux/arm64"}
	if binary == "kubectl-rollcall" {
		all = append(all, "darwin/amd64", "darwin/arm64", "windows/amd64")
	}
	return slices.DeleteFunc(all, func(p string) bool { return len(r.only) > 0 && !slices.Contains(r.only, p) })
}

// binaries builds the manager and the plugin by the targets of the Makefile, and reads each SBOM from what Go wrote into
// the binary.
func (r release) binaries() error {
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return fmt.Errorf("reading the licence: %w", err)
	}
	for binary, target := range map[string]string{"manager": "build", "kubectl-rollcall": "build-plugin"} {
		for _, platform := range r.platforms(binary) {
			if err := r.binary(binary, target, platform, licence); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r release) binary(binary, target, platform string, licence []byte) error {
	system, arch, _ := strings.Cut(platform, "/")
	if err := r.make([]string{"GOOS=" + system, "GOARCH=" + arch}, target); err != nil {
		return fmt.Errorf("building %s for %s: %w", binary, platform, err)
	}
	content, err := os.ReadFile(filepath.Join("bin", binary))
	if err != nil {
		return fmt.Errorf("reading what was built for %s: %w", platform, err)
	}
	inside := binary
	if system == "windows" {
		inside += ".exe"
	}
	product := map[string]string{"manager": "rollcall", "kubectl-rollcall": "kubectl-rollcall"}[binary]
	name := fmt.Sprintf("%s_%s_%s_%s", product, r.version, system, arch)
	if err := r.archive(name+".tar.gz", map[string][]byte{inside: content, "LICENSE": licence}); err != nil {
		return err
	}
	var more []cdx.Component
	if binary == "manager" { // whose SBOM is the image's too
		version, err := output("go", "list", "-m", "-f", "{{.Version}}", cas)
		if err != nil {
			return err
		}
		more = append(more, component(cdx.ComponentTypeLibrary, cas, strings.TrimSpace(version)))
	}
	if err := r.sbom(name+".cdx.json", content, more...); err != nil {
		return fmt.Errorf("the contents of %s for %s: %w", binary, platform, err)
	}
	return nil
}

// make runs a target so that what it builds says nothing of the folder in which it is built.
func (r release) make(environment []string, arguments ...string) error {
	command := exec.Command("make", append([]string{"--no-print-directory", "VERSION=" + r.version}, arguments...)...)
	command.Env = append(append(os.Environ(), "GOFLAGS=-trimpath"), environment...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

func (r release) sbom(name string, binary []byte, more ...cdx.Component) error {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("reading the binary's build information: %w", err)
	}
	main := component(cdx.ComponentTypeApplication, info.Main.Path, r.version)
	digest := sha256.Sum256(binary)
	main.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}}
	parts := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, dep := range info.Deps {
		parts = append(parts, component(cdx.ComponentTypeLibrary, dep.Path, dep.Version))
	}
	parts = append(parts, more...)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &parts
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("encoding the SBOM: %w", err)
	}
	return r.write(name, text.Bytes())
}

func component(kind cdx.ComponentType, path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{Type: kind, BOMRef: url, Name: path, Version: version, PackageURL: url}
}

// chart packs charts/rollcall as helm package does, with the release's version and links to the docs of that version.
func (r release) chart() error {
	const folder = "charts/rollcall"
	files := map[string][]byte{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		files["rollcall/"+strings.TrimPrefix(path, folder+"/")] = content
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	number := strings.TrimPrefix(r.version, "v")
	about := string(files["rollcall/Chart.yaml"])
	about = strings.Replace(about, "\nversion: 0.0.0\n", "\nversion: "+number+"\n", 1)
	about = strings.Replace(about, "\nappVersion: dev\n", "\nappVersion: "+r.version+"\n", 1)
	if strings.Count(about, number) != 2 {
		return errors.New("charts/rollcall/Chart.yaml: no version 0.0.0 and appVersion dev to replace")
	}
	files["rollcall/Chart.yaml"] = []byte(about)
	for name, content := range files {
		files[name] = r.own(linkToDocs.ReplaceAll(content, []byte(repository+"/blob/"+r.version+"/")))
	}
	return r.archive("rollcall-"+number+".tgz", files)
}

func (r release) manifests() error {
	text, err := output("make", "--no-print-directory", "--silent", "render", "IMG="+image+":"+r.version)
	if err != nil {
		return err
	}
	return r.write("install.yaml", r.own([]byte(text)))
}

// krew writes the manifest by which "kubectl krew install --manifest" installs the plugin:
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
func (r release) krew() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	type platform struct{ System, Arch, URL, Sum, Binary string }
	var all []platform
	for _, name := range r.platforms("kubectl-rollcall") {
		system, arch, _ := strings.Cut(name, "/")
		file := fmt.Sprintf("kubectl-rollcall_%s_%s_%s.tar.gz", r.version, system, arch)
		p := platform{system, arch, repository + "/releases/download/" + r.version + "/" + file, sums[file], "kubectl-rollcall"}
		if system == "windows" {
			p.Binary += ".exe"
		}
		all = append(all, p)
	}
	var text bytes.Buffer
	if err := template.Must(template.New("krew").Parse(krewManifest)).Execute(&text, map[string]any{
		"Version": r.version, "Home": repository, "Platforms": all,
	}); err != nil {
		return fmt.Errorf("writing the manifest for krew: %w", err)
	}
	return r.write("rollcall.krew.yaml", r.own(text.Bytes()))
}

// krewManifest is for the binary's archives, which [release.binary] packs.
const krewManifest = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: rollcall
spec:
  version: {{.Version}}
  homepage: {{.Home}}
  shortDescription: Show and control what Rollcall does with pods
  description: |
    Shows which pods of OpenKruise CloneSets are in rotation in the service registry and why a pod waits, follows a
    rollout, checks a CloneSet before it is applied, gives CloneSets their hooks, and skips a hook of a stuck pod.
  caveats: |
    The cluster needs Rollcall: {{.Home}}
  platforms:
{{- range .Platforms}}
  - selector:
      matchLabels:
        os: {{.System}}
        arch: {{.Arch}}
    uri: {{.URL}}
    sha256: {{.Sum}}
    bin: {{.Binary}}
{{- end}}
`

// digest makes the image in bin/image, for the workflow to push, and returns the digest that it has in every registry.
func (r release) digest() (string, error) {
	if err := r.make(nil, "image", "PLATFORMS="+strings.Join(r.platforms("manager"), " ")); err != nil {
		return "", fmt.Errorf("making the image: %w", err)
	}
	text, err := os.ReadFile("bin/image/index.json")
	if err != nil {
		return "", fmt.Errorf("reading the image: %w", err)
	}
	var layout struct{ Manifests []struct{ Digest string } }
	if err := json.Unmarshal(text, &layout); err != nil {
		return "", fmt.Errorf("reading the image: %w", err)
	}
	if len(layout.Manifests) != 1 {
		return "", fmt.Errorf("bin/image has %d entries, want one for all platforms", len(layout.Manifests))
	}
	return strings.TrimPrefix(layout.Manifests[0].Digest, "sha256:"), nil
}

// provenance writes which commit the files and the image come from and which Go made them. The workflow signs the checksums,
// of which this file's is one. The form is in-toto's, with SLSA's predicate: https://slsa.dev/spec/v1.1/provenance.
func (r release) provenance() error {
	compiler, err := output("go", "env", "GOVERSION")
	if err != nil {
		return err
	}
	sums, err := r.sums()
	if err != nil {
		return err
	}
	digest, err := r.digest()
	if err != nil {
		return err
	}
	type object = map[string]any
	subjects := []object{{"name": image, "digest": object{"sha256": digest}}}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		subjects = append(subjects, object{"name": name, "digest": object{"sha256": sums[name]}})
	}
	statement := object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":          repository + "/blob/main/hack/release",
				"externalParameters": object{"version": r.version},
				"internalParameters": object{"go": strings.TrimSpace(compiler), "platforms": r.platforms("manager")},
				"resolvedDependencies": []object{
					{"uri": "git+" + repository + "@refs/tags/" + r.version, "digest": object{"gitCommit": r.commit}},
				},
			},
			"runDetails": object{"builder": object{"id": repository + "/blob/main/.github/workflows/release.yaml"}},
		},
	}
	text, err := json.MarshalIndent(statement, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	return r.write("provenance.intoto.json", append(r.own(text), '\n'))
}

func (r release) checksums() error {
	sums, err := r.sums()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&text, "%s  %s\n", sums[name], name)
	}
	return r.write("checksums.txt", []byte(text.String()))
}

func (r release) sums() (map[string]string, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, fmt.Errorf("reading the release: %w", err)
	}
	sums := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the release: %w", err)
		}
		sum := sha256.Sum256(content)
		sums[entry.Name()] = hex.EncodeToString(sum[:])
	}
	return sums, nil
}

// archive packs the files in the order of their names, without times and owners.
func (r release) archive(name string, files map[string][]byte) error {
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	w := tar.NewWriter(compressed)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		mode := int64(0o644)
		if !strings.Contains(path, "/") && path != "LICENSE" {
			mode = 0o755 // the binary
		}
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: mode, Size: int64(len(files[path]))}); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := w.Write(files[path]); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	return r.write(name, packed.Bytes())
}

func (r release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

func output(name string, arguments ...string) (string, error) {
	var problems bytes.Buffer
	command := exec.Command(name, arguments...)
	command.Stderr = &problems
	text, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w\n%s", name, strings.Join(arguments, " "), err, problems.String())
	}
	return string(text), nil
}
