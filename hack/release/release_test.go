package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"sigs.k8s.io/yaml"
)

// TestRelease holds the files in the folder DIST, which bin/release made for VERSION, to one another and to that version.
// make verify-release and the workflow of a release run it.
func TestRelease(t *testing.T) {
	dist, version := os.Getenv("DIST"), os.Getenv("VERSION")
	if dist == "" || version == "" {
		t.Fatal("set DIST to the folder of a release and VERSION to its version, as hack/verify-release.sh does")
	}
	r := made{T: t, dist: dist, version: version, release: release{of: os.Getenv("GITHUB_REPOSITORY")}}
	t.Run("checksums", func(t *testing.T) { r.on(t).expectChecksums() })
	t.Run("binaries", func(t *testing.T) { r.on(t).expectBinaries() })
	t.Run("image", func(t *testing.T) { r.on(t).expectImage() })
	t.Run("krew", func(t *testing.T) { r.on(t).expectKrew() })
	t.Run("chart", func(t *testing.T) { r.on(t).expectChart() })
	t.Run("install.yaml", func(t *testing.T) {
		text := r.read("install.yaml")
		r.on(t).expectIn("install.yaml", string(text), r.ours("image: "+image+":"+version+"\n"))
		r.on(t).expectOwnLinks("install.yaml", text)
	})
	t.Run("provenance", func(t *testing.T) { r.on(t).expectProvenance() })
}

// made is a release.
type made struct {
	*testing.T

	release

	dist, version string
}

// ours is a text that names the project, as it is in a release of this repository.
func (r made) ours(text string) string { return string(r.own([]byte(text))) }

func (r made) on(t *testing.T) made { t.Helper(); r.T = t; return r }

func (r made) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r made) read(name string) []byte {
	r.Helper()
	content, err := os.ReadFile(filepath.Join(r.dist, name))
	r.must(err)
	return content
}

func (r made) expectIn(name, text, want string) {
	r.Helper()
	if !strings.Contains(text, want) {
		r.Errorf("%s: no %q in\n%s", name, want, text)
	}
}

func (r made) expectChecksums() {
	entries, err := os.ReadDir(r.dist)
	r.must(err)
	sums := string(r.read("checksums.txt"))
	for _, entry := range entries {
		if entry.Name() != "checksums.txt" {
			r.expectIn("checksums.txt", sums, sum(r.read(entry.Name()))+"  "+entry.Name()+"\n")
		}
	}
}

// expectBinaries runs those of this machine's platform, and holds each SBOM to the binary that it is about.
func (r made) expectBinaries() {
	boms, err := filepath.Glob(filepath.Join(r.dist, "*.cdx.json"))
	r.must(err)
	if len(boms) < 2 {
		r.Fatalf("%d SBOMs, want those of the manager and of the plugin", len(boms))
	}
	ran := 0
	for _, bom := range boms {
		var about cdx.BOM
		name := strings.TrimSuffix(filepath.Base(bom), ".cdx.json")
		r.must(json.Unmarshal(r.read(name+".cdx.json"), &about))
		for file, content := range r.unpack(name + ".tar.gz") {
			if file == "LICENSE" {
				continue
			}
			if got := (*about.Metadata.Component.Hashes)[0].Value; got != sum(content) {
				r.Errorf("%s.cdx.json is about a binary with the sum %s, not about the one in the archive", name, got)
			}
			if strings.HasSuffix(name, "_"+runtime.GOOS+"_"+runtime.GOARCH) {
				r.expectIn(file+" --version", r.run(content), r.version)
				ran++
			}
		}
		if got := about.Metadata.Component.Version; got != r.version {
			r.Errorf("%s.cdx.json is about version %q, want %q", name, got, r.version)
		}
	}
	if ran != 2 {
		r.Errorf("%d binaries are for this machine, want the manager and the plugin", ran)
	}
}

// expectImage holds what bin/image has for each platform to the manager of the archive, and to the CAs of its SBOM.
func (r made) expectImage() {
	type manifest struct {
		Manifests []struct {
			Digest   string
			Platform struct{ OS, Architecture string }
		}
		Layers []struct{ Digest string }
	}
	blob := func(digest string) (content []byte) {
		content, err := os.ReadFile(filepath.Join(r.dist, "../bin/image/blobs", strings.Replace(digest, ":", "/", 1)))
		r.must(err)
		return content
	}
	decode := func(content []byte) (m manifest) { r.must(json.Unmarshal(content, &m)); return m }
	index, err := os.ReadFile(filepath.Join(r.dist, "../bin/image/index.json"))
	r.must(err)
	platforms := decode(blob(decode(index).Manifests[0].Digest)).Manifests
	if len(platforms) == 0 {
		r.Fatal("bin/image has no image")
	}
	for _, p := range platforms {
		name := "rollcall_" + r.version + "_" + p.Platform.OS + "_" + p.Platform.Architecture
		files := map[string][]byte{}
		for _, layer := range decode(blob(p.Digest)).Layers {
			maps.Copy(files, r.unpacked(blob(layer.Digest)))
		}
		if !bytes.Equal(files["manager"], r.unpack(name + ".tar.gz")["manager"]) {
			r.Errorf("the image for %s has another manager than the archive", name)
		}
		text := string(files["etc/ssl/certs/ca-certificates.crt"])
		about, _, _ := strings.Cut(text, "\n")
		_, version, _ := strings.Cut(strings.TrimSuffix(about, "."), cas+" ")
		r.expectIn(name+".cdx.json", string(r.read(name+".cdx.json")), `"pkg:golang/`+cas+"@"+version+`"`)
		if roots := x509.NewCertPool(); !roots.AppendCertsFromPEM([]byte(text)) {
			r.Errorf("the image for %s trusts no CA", name)
		}
		if len(files) != 2 {
			r.Errorf("the image for %s has %d files, want the manager and the CAs", name, len(files))
		}
	}
}

// expectKrew holds the manifest to krew's rules for one, and installs from it as krew does: it takes the archive that the
// address names, compares its checksum, unpacks it, and links to the binary.
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
func (r made) expectKrew() {
	var manifest struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description, Caveats string
			Platforms                                                 []struct {
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
				URI, Sha256, Bin string
			}
		}
	}
	r.must(yaml.UnmarshalStrict(r.read("rollcall.krew.yaml"), &manifest))
	spec := manifest.Spec
	if manifest.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || manifest.Kind != "Plugin" ||
		manifest.Metadata.Name != "rollcall" || spec.Version != r.version || len(spec.Platforms) == 0 ||
		!regexp.MustCompile(`^.{1,50}$`).MatchString(spec.ShortDescription) {
		r.Fatalf("krew refuses the manifest, or it is for another version: %+v", manifest)
	}
	here := false
	for _, p := range spec.Platforms {
		if want := r.ours(repository + "/releases/download/" + r.version + "/"); !strings.HasPrefix(p.URI, want) {
			r.Errorf("address %s, want one of %s", p.URI, want)
		}
		archive := path.Base(p.URI)
		if got := sum(r.read(archive)); got != p.Sha256 {
			r.Errorf("%s has the sum %s, and the manifest says %s", archive, got, p.Sha256)
		}
		binary := r.unpack(archive)[p.Bin]
		if len(binary) == 0 {
			r.Errorf("%s has no %s", archive, p.Bin)
		}
		if p.Selector.MatchLabels.OS == runtime.GOOS && p.Selector.MatchLabels.Arch == runtime.GOARCH {
			r.expectIn("kubectl-rollcall --version", r.run(binary), r.version)
			here = true
		}
	}
	if !here {
		r.Errorf("the manifest has nothing for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
}

func (r made) expectChart() {
	number := strings.TrimPrefix(r.version, "v")
	files := r.unpack("rollcall-" + number + ".tgz")
	about := string(files["rollcall/Chart.yaml"])
	r.expectIn("Chart.yaml", about, "\nversion: "+number+"\n")
	r.expectIn("Chart.yaml", about, "\nappVersion: "+r.version+"\n")
	for _, name := range []string{"Chart.yaml", "README.md", "templates/NOTES.txt", "files/prometheus_rule.yaml"} {
		r.expectIn(name, string(files["rollcall/"+name]), r.ours(repository+"/blob/"+r.version+"/"))
	}
	for name, content := range files {
		r.expectOwnLinks(name, content)
	}
}

func (r made) expectOwnLinks(name string, content []byte) {
	r.Helper()
	for _, match := range linkToDocs.FindAllSubmatch(content, -1) {
		if string(match[1]) != r.version {
			r.Errorf("%s links to the docs of %s", name, match[1])
		}
	}
}

func (r made) expectProvenance() {
	type digest struct{ SHA256, GitCommit string }
	var statement struct {
		Subject []struct {
			Name   string
			Digest digest
		}
		Predicate struct {
			BuildDefinition struct {
				ExternalParameters   struct{ Version string }
				ResolvedDependencies []struct{ Digest digest }
			}
		}
	}
	r.must(json.Unmarshal(r.read("provenance.intoto.json"), &statement))
	sums := map[string]string{}
	for _, s := range statement.Subject {
		sums[s.Name] = s.Digest.SHA256
	}
	if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(sums[r.ours(image)]) {
		r.Errorf("the digest of %s is %q", r.ours(image), sums[r.ours(image)])
	}
	entries, err := os.ReadDir(r.dist)
	r.must(err)
	for _, entry := range entries {
		if name := entry.Name(); name != "checksums.txt" && name != "provenance.intoto.json" && sums[name] != sum(r.read(name)) {
			r.Errorf("%s has another sum than %q", name, sums[name])
		}
	}
	build := statement.Predicate.BuildDefinition
	if build.ExternalParameters.Version != r.version || len(build.ResolvedDependencies[0].Digest.GitCommit) != 40 {
		r.Errorf("the provenance is of %+v", build)
	}
}

// run returns what a binary says of its version.
func (r made) run(binary []byte) string {
	r.Helper()
	file := filepath.Join(r.TempDir(), "binary")
	r.must(os.WriteFile(file, binary, 0o700))
	out, err := exec.CommandContext(r.Context(), file, "--version").CombinedOutput()
	r.must(err)
	return string(out)
}

func (r made) unpack(name string) map[string][]byte { r.Helper(); return r.unpacked(r.read(name)) }

func (r made) unpacked(archived []byte) map[string][]byte {
	r.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(archived))
	r.must(err)
	files := map[string][]byte{}
	for archive := tar.NewReader(unpacked); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		r.must(err)
		if header.Typeflag == tar.TypeDir {
			continue
		}
		files[header.Name], err = io.ReadAll(archive)
		r.must(err)
	}
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}
