# The image that docker-build makes and deploy runs. deploy needs it set.
IMG ?= rollcall:dev
CONTAINER_TOOL ?= docker
KUBECTL ?= kubectl

# The version that the manager prints. It is unknown without git, or in a checkout of another user.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
# gRPC, which comes with etcd's client, can show its calls with golang.org/x/net/trace. Nothing here does, and the
# templates in there keep the linker from leaving out what is not used: 11 MB of 49.
TAGS := grpcnotrace

# The version comes from LDFLAGS, because Go's own stamp fails in a checkout of another user.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -buildvcs=false)

# Python's packages are pinned by hash, in a venv for each state of the pins.
venv = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rollcall/$(1)-$(firstword $(shell sha256sum $(2)))
fill-venv = [[ -e $(1)/done ]] || { python3 -m venv $(1) && $(1)/bin/pip install --quiet --require-hashes -r $(2) && touch $(1)/done; }

# One setting for everything but the race detector, which needs C, so that Go's cache holds one other build of each library.
export CGO_ENABLED := 0

# Tools are pinned in hack/tools/go.mod. Go builds each when it is first run and keeps it in its build cache.
TOOL := go tool -modfile=hack/tools/go.mod

# Builds what a target needs that is not built yet, and first prints how long that and the target take.
READY := { [[ -e bin/ready ]] || echo 'Compiling test/ready, which then shows what must be built, and how long that takes'; } && go build -o bin/ready ./test/ready && bin/ready

# The race detector needs a C compiler. Without one the tests still run, with a warning.
CC_FOUND := $(shell command -v "$$(go env CC)" 2>/dev/null)
RACE := $(if $(CC_FOUND),-race)
RESULTS := bin/results
# CI sums up what was skipped and why. Printed at length it would hide what failed.
GOTESTSUM := $(TOOL) gotestsum --format-hide-empty-pkg --hide-summary=skipped
# The order in which the tests of a package run: the seed of an earlier run, or a new one.
SHUFFLE ?= on
GOTEST := $(if $(RACE),env CGO_ENABLED=1) go test -json $(RACE) -shuffle=on -timeout=20m

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

.DEFAULT_GOAL := build

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What the tests, and all that runs on a cluster of this machine, share is built on Linux alone.
NEEDS_LINUX := test test-outoftree servers test-servers test-two-clusters test-registries test-nacos-2 chaos chaos-mutants soak bench readers demo adopt nightly

.PHONY: check-linux
$(NEEDS_LINUX): check-linux
check-linux:
ifneq ($(shell uname -s),Linux)
	@echo 'This needs Linux, where each pod and server can have an address of 127.0.0.0/8. On macOS, use a Linux VM, or try make kind-up.' >&2; exit 1
endif

##@ Build

.PHONY: build
build: ## Build bin/manager.
	go build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o bin/manager ./cmd

.PHONY: build-plugin
build-plugin: ## Build bin/kubectl-rollcall, the kubectl plugin.
	go build -ldflags '$(LDFLAGS)' -o bin/kubectl-rollcall ./cmd/kubectl-rollcall

# What the image trusts, always built for this machine's platform: the other is the manager's.
.PHONY: cas
cas: ## Write the CAs that the image trusts into bin/ca-certificates.crt.
	@mkdir -p bin
	@GOOS= GOARCH= go run ./hack/cas bin/ca-certificates.crt

.PHONY: docker-build
docker-build: ## Build the image IMG (default rollcall:dev).
	$(CONTAINER_TOOL) build --build-arg VERSION='$(VERSION)' -t '$(IMG)' .

# What the image of a release is for.
PLATFORMS ?= linux/amd64 linux/arm64

.PHONY: image
image: cas ## Write the image for PLATFORMS as an OCI layout into bin/image, without a container engine, to push with crane or skopeo.
	@for platform in $(PLATFORMS); do \
		GOOS=$${platform%%/*} GOARCH=$${platform##*/} go build -tags '$(TAGS)' -ldflags '$(LDFLAGS)' \
			-o "bin/image-binaries/$$platform/manager" ./cmd; \
	done
	rm -rf bin/image
	go run ./hack/layout bin/image bin/ca-certificates.crt $(PLATFORMS)

.PHONY: clean
clean: ## Remove what was built in this checkout; Go's cache and the test servers' stay.
	rm -rf bin

##@ Generate

.PHONY: generate
generate: manifests ## Regenerate all generated files.
	go generate ./...

.PHONY: manifests
manifests: ## Generate config/rbac/role.yaml from the markers in the code, and what the chart takes from config.
	$(TOOL) controller-gen rbac:roleName=rollcall-manager paths=./cmd/... paths=./internal/... \
		output:rbac:artifacts:config=config/rbac
	@cp config/rbac/role.yaml config/components/prometheus/prometheus_rule.yaml config/components/prometheus/grafana.json \
		config/components/lint/policy.yaml charts/rollcall/files/
	@cp config/components/write-policy/policy.yaml charts/rollcall/files/write-policy.yaml

.PHONY: fmt
fmt: ## Format the code.
	$(TOOL) golangci-lint fmt

.PHONY: tidy
tidy: ## Tidy each go.mod but those of servers.
	go mod tidy
	cd hack/tools && go mod tidy
	cd test/outoftree && go mod tidy
	cd test/neighbours && go mod tidy
	cd test/bench/registries && go mod tidy
	cd test/harness/registries/readers && go mod tidy
	cd charts && go mod tidy
	cd hack/release && go mod tidy

##@ Check

VERIFY := verify-generated verify-manifests verify-costs verify-english tidy-check vet lint vulncheck

.PHONY: verify
verify: ## Check generated files, manifests, English, go.mod, vet, lint, known vulnerabilities, and what a pod costs.
	@hack/phases.sh $(VERIFY)

.PHONY: presubmit
presubmit: ## Run what a change must pass before it is pushed: verify, unit tests and the out-of-tree driver.
	@hack/phases.sh $(VERIFY) test-unit test-outoftree

.PHONY: verify-generated
verify-generated: ## Fail if generated files are out of date.
	@hack/verify-generated.sh

.PHONY: verify-manifests
verify-manifests: ## Render every kustomization and the chart, check what comes out, and test the alerts and the release notes.
	go test -count=1 ./config/...
	go test -C hack/release -count=1 -run '^TestNot' ./...
	go test -C charts -count=1 ./...

.PHONY: verify-costs
verify-costs: ## Fail if a pod takes more calls and writes than it should, or more allocations than it did.
	go test -count=1 -run '^Test(Allocations|LifeInServiceAndOut)$$' ./internal/lifecycle ./internal/controller ./internal/evictions

.PHONY: verify-english
verify-english: ## Fail if a page, a text or a comment has words that .vale/styles/Rollcall does not allow.
ifdef CC_FOUND
	CGO_ENABLED=1 $(TOOL) vale --glob='!{*_test.go,*.zh-CN.md}' .github .golangci.yml *.md Makefile charts/rollcall cmd config docs hack/docs hack/kind hack/release hack/site internal registry test/demo test/e2e/remote.yaml
else
	@mkdir -p $(RESULTS) && echo 'vale needs a C compiler' | tee $(RESULTS)/$@.skipped
endif

.PHONY: tidy-check
tidy-check: ## Fail if go.mod or go.sum is not tidy.
	go mod tidy -diff
	cd hack/tools && go mod tidy -diff
	cd test/outoftree && go mod tidy -diff
	cd test/neighbours && go mod tidy -diff
	cd test/bench/registries && go mod tidy -diff
	cd test/harness/registries/readers && go mod tidy -diff
	cd charts && go mod tidy -diff
	cd hack/release && go mod tidy -diff

.PHONY: vet
vet: ## Run go vet.
	go vet ./...
	go vet -C test/bench/registries ./...

.PHONY: lint
lint: ## Run golangci-lint; the first run on a machine builds it.
	@echo "Building golangci-lint where this machine has not yet: 2 to 5 minutes on two cores"
	@$(TOOL) -n golangci-lint
	$(TOOL) golangci-lint run

.PHONY: vulncheck
vulncheck: ## Look up known vulnerabilities in https://vuln.go.dev, or in the mirror that GOVULNDB names.
	@hack/vulncheck.sh

.PHONY: lint-fix
lint-fix: ## Run golangci-lint and fix what it can.
	$(TOOL) golangci-lint run --fix

##@ Test

.PHONY: test
test: ## Run all tests, with -race; the end shows how long each part took, and what failed.
	@hack/phases.sh test-servers test-unit test-outoftree test-go-registries test-integration

# How often.
N ?= 20

.PHONY: test-repeat
test-repeat: check-race ## Run unit tests and scenarios N times (default 20) with new seeds, several runs at the same time.
	@RACE='$(RACE)' hack/repeat.sh '$(N)'

# The tests that start a control plane. Those in test/registries start registries, those in config build promtool and are make verify's,
# and all others are unit tests. Those in test need an address for each server, which only Linux has.
CLUSTER_TESTS := ./test/integration/...
UNIT_TESTS = $(shell go list ./... | grep -vE '/test/($(if $(filter Linux,$(shell uname -s)),integration|registries,.*))(/|$$)|/rollcall/config$$')

# How many tests of a package run at the same time: most of the long ones wait rather than compute.
PARALLEL ?= 8

.PHONY: test-unit
test-unit: check-race ## Run the tests that need no cluster.
	@mkdir -p $(RESULTS)
	@[[ $$(uname -s) == Linux ]] || echo 'NOT TESTED on this system: the packages in test, and the tests in files *_linux_test.go' >&2
	$(GOTESTSUM) --format pkgname --jsonfile $(RESULTS)/unit.json --raw-command -- bash -ec '\
		$(GOTEST) -parallel=$(PARALLEL) $(UNIT_TESTS); \
		$(if $(RACE),go test -json -run "TestEveryInput|TestModel" ./internal/lifecycle ./internal/controller)'

.PHONY: record-walks
record-walks: ## Record the walks of the model again, after a change that is meant to change them.
	ROLLCALL_MODEL_RECORD=1 ROLLCALL_MODEL_WALKS=2000 go test -count=1 -timeout=30m -run 'TestModel$$' ./internal/controller

# The packages whose conditions unneeded breaks, by the part of the product that OF names, and those whose tests it asks too.
OF ?= engine
ROOMS_engine := ./internal/lifecycle ./internal/plan ./internal/visit ./internal/observe ./internal/tracker ./internal/report ./internal/waiting
ASKED_engine := ./internal/controller
ROOMS_drivers := ./registry ./registry/driverkit $(addprefix ./registry/,consul etcd eureka http memory nacos pod zookeeper) ./internal/registryclient
ASKED_drivers := ./test/registries/etcd,./test/registries/zookeeper
ROOMS_rest := ./internal/config ./internal/resync ./internal/plugin ./internal/history ./test/harness/checker
ROOMS ?= $(ROOMS_$(OF))
ASKED ?= $(ASKED_$(OF))

.PHONY: unneeded
unneeded: ## Break each condition of the engine, and show which no test notices, or only one of another package; hours; OF=drivers or rest are other parts, ROOMS names packages.
	go run ./hack/unneeded -tests '$(ASKED)' $(ROOMS)

.PHONY: numbers
numbers: ## Count what a rule of the engine costs: lines, branches, the largest types, and the names behind some rules.
	@go run ./hack/numbers

.PHONY: test-outoftree
test-outoftree: check-race ## Build a manager of another module with a driver of its own, and run the suite on that.
	@mkdir -p $(RESULTS)
	go vet -C test/outoftree ./...
	$(GOTESTSUM) --format pkgname --jsonfile $(RESULTS)/outoftree.json --raw-command -- \
		$(GOTEST:test=test -C test/outoftree) ./...

INTEGRATION_JSON := $(RESULTS)/integration.json
# A part of the scenarios; empty means all of them.
RUN ?=

.PHONY: test-integration
test-integration: check-race servers ## Run the scenarios on a real control plane with OpenKruise.
	@mkdir -p $(RESULTS)
	$(GOTESTSUM) --format testname --jsonfile $(INTEGRATION_JSON) --raw-command -- \
		$(GOTEST) -count=1 -timeout=40m -p=1 $(if $(RUN),-run='$(RUN)') $(CLUSTER_TESTS)

# Older pairs than the newest, which is the default of every target: KUBERNETES=1.34 and KRUISE=1.8 choose what test/harness/cluster/servers
# pins.
OLDEST := KUBERNETES=1.26 KRUISE=1.7
OLDER := KUBERNETES=1.34 KRUISE=1.8

.PHONY: test-integration-oldest test-integration-older
test-integration-oldest: ## Run the scenarios on the oldest Kubernetes and OpenKruise that are pinned.
test-integration-older: ## Run the scenarios on those between the oldest and the newest.
test-integration-oldest test-integration-older: test-integration-%:
	@$(if $(filter oldest,$*),$(OLDEST),$(OLDER)) $(MAKE) --no-print-directory test-integration INTEGRATION_JSON=$(RESULTS)/integration-$*.json

.PHONY: test-neighbours
test-neighbours: ## Run the libraries of Flux and of the descheduler against the hooks and the evictions.
	go test -C test/neighbours -count=1 ./...

.PHONY: test-fleet
test-fleet: servers ## Enroll 200 CloneSets with 1,000 pods at the same time, and take their hooks back.
	ROLLCALL_FLEET=200 go test -count=1 -parallel=1 -v -timeout=30m -run '^TestEnrollment$$' ./test/integration

.PHONY: test-two-clusters
test-two-clusters: servers ## Run two clusters that share a Nacos, and a Eureka; make test has Consul.
	@$(REGISTRIES_CMD) get nacos eureka
	ROLLCALL_TWO_CLUSTERS='nacos eureka' go test -count=1 -v -timeout=30m -run '^TestTwoClusters$$' ./test/integration

# The drivers that test-registries tests; empty means all. Their results go into a file of this name.
REGISTRIES ?=
REGISTRIES_JSON := $(RESULTS)/registries.json
REGISTRIES_CMD := go run ./test/registries/cmd/registries

# Nacos takes the longest: it begins first. With Eureka comes the way from one registry to another.
REGISTRIES_TESTS = $(if $(REGISTRIES),./test/registries/cmd/... $(REGISTRIES:%=./test/registries/%) $(if $(filter eureka,$(REGISTRIES)),./test/registries/migration),./test/registries/nacos ./test/registries/...)

# A server that this machine can't run has its tests skipped. One that can't be built is an error.
.PHONY: test-registries
test-registries: check-race ## Test the drivers of REGISTRIES (default all) on real servers.
	@mkdir -p $(RESULTS)
	@$(REGISTRIES_CMD) get $(REGISTRIES) | tee $(RESULTS)/test-$(notdir $(REGISTRIES_JSON:.json=.skipped))
	@status=0; \
	$(GOTESTSUM) --format pkgname --jsonfile $(REGISTRIES_JSON) --raw-command -- \
		$(GOTEST) -count=1 -timeout=30m $(REGISTRIES_TESTS) || status=$$?; \
	$(REGISTRIES_CMD) report $(REGISTRIES_JSON) || status=$$?; \
	exit $$status

.PHONY: test-go-registries
test-go-registries: ## Test the drivers whose servers are built from Go modules.
	@$(MAKE) --no-print-directory test-registries REGISTRIES='consul etcd' REGISTRIES_JSON=$(RESULTS)/go-registries.json

.PHONY: test-registries-older
test-registries-older: ## Test the drivers on the servers before the newest of which two versions are pinned.
	@CONSUL=1.19 ETCD=3.6 EUREKA=2025.0 $(MAKE) --no-print-directory test-registries REGISTRIES='consul etcd eureka' \
		REGISTRIES_JSON=$(RESULTS)/registries-older.json

.PHONY: test-nacos-2 chaos-nacos-2
test-nacos-2: ## Test the driver on a cluster of Nacos 2.5.
	@NACOS=2.5 $(GOTESTSUM) --format pkgname --raw-command -- $(GOTEST) -count=1 -timeout=30m -run Cluster ./test/registries/nacos

chaos-nacos-2: ## Run chaos on a cluster of Nacos 2.5.
	@NACOS=2.5 $(MAKE) --no-print-directory chaos REGISTRY=nacos

# The CPU of whole processes is measured: one test at a time, without the race detector.
.PHONY: test-large-service
test-large-service: ## Hold that a call costs as much in a service of 5,000 instances as in one of 10, in CPU too, on real servers.
	@$(REGISTRIES_CMD) get
	ROLLCALL_OTHERS=5000 go test -count=1 -v -p=1 -parallel=1 -timeout=30m $(addprefix ./test/registries/,consul etcd eureka nacos zookeeper) \
		-run '^TestConformance$$/^(CostDoesNotGrow|ACL|CacheOff|v1)$$/^(CostDoesNotGrow|persistent)$$/^CostDoesNotGrow$$'

# How long each fuzz test runs. Their seeds run with every other test.
FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (default 30s); it writes a failing input into testdata/fuzz: keep it with the fix.
	@FUZZTIME='$(FUZZTIME)' hack/fuzz.sh

.PHONY: check-race
check-race:
ifndef CC_FOUND
	@echo "WARNING: no C compiler ($$(go env CC)), so the tests run WITHOUT the race detector. Install gcc to have it." >&2
endif

.PHONY: servers test-servers
servers: ## Build the servers of the test cluster, once, into the user's cache.
	@$(READY) servers

test-servers:
	@$(READY) test -test $(RACE)

.PHONY: pin-servers
pin-servers: ## Write the checksums of the servers that their projects publish, which make demo then downloads instead of building them.
	@go run ./test/ready pin

# How long, the plan of an earlier run, and a registry that runs as a cluster of real servers; each may be left out.
CHAOS ?=
SEED ?=

.PHONY: chaos
chaos: ## Inject faults into a real OpenKruise and check the invariants; CHAOS=5m sets how long, SEED=42 repeats a plan, REGISTRY=etcd is a real cluster.
	@$(READY) chaos
	@CHAOS='$(CHAOS)' SEED='$(SEED)' REGISTRY='$(REGISTRY)' bin/chaos

# The registries whose storms CI and make nightly run.
STORMS := chaos-consul chaos-etcd chaos-zookeeper chaos-eureka chaos-nacos

.PHONY: $(STORMS)
$(STORMS): chaos-%:
	@$(MAKE) --no-print-directory chaos REGISTRY=$*

# A part of a mutant's name; empty means all of them.
MUTANT ?=

.PHONY: chaos-mutants
chaos-mutants: ## Hold 23 managers that are broken on purpose against chaos, which must find each; MUTANT=one-of-each is what CI runs.
	@$(READY) chaos
	@MUTANT='$(MUTANT)' bin/chaos mutants

# How long.
SOAK ?=

.PHONY: soak
soak: ## Run rollouts without a fault for SOAK (default 30m), and fail where memory or goroutines of a manager grow.
	@$(READY) soak
	@SOAK='$(SOAK)' SEED='$(SEED)' bin/chaos soak

# short is a few minutes; empty is everything. PART is one part of it, OUT the folder for the JSON file and the plots.
BENCH ?=
PART ?=
OUT ?= bin/bench

ADOPT := adopt-consul adopt-eureka adopt-nacos adopt-nacos-spring adopt-nacos-dubbo adopt-zookeeper-dubbo adopt-zookeeper-spring
.PHONY: nightly
nightly: ## Run the jobs that .ci/run leaves out, one after the other, as root, in about 10 hours; the end shows how long each took.
	@.ci/run nightly

.PHONY: bench
bench: ## Compare Rollcall with a floor and a recipe on a real API server, in 40 minutes; BENCH=short takes 10.
	@$(READY) bench
	@BENCH='$(BENCH)' PART='$(PART)' OUT='$(OUT)' BEFORE='$(BEFORE)' bin/bench/bench

.PHONY: bench-registries
bench-registries: ## Compare 1,000 registrations with those of each real registry's own client; REGISTRIES='consul etcd' takes some, PART=reads measures reads in a large service, PART=lists the lists of many clusters.
	@go build -C test/bench/registries -o '$(CURDIR)/bin/bench/registries' .
	@REGISTRIES='$(REGISTRIES)' PART='$(PART)' SIZES='$(SIZES)' bin/bench/registries

# Words of which one is in the name of each reader that is measured; empty is all.
READERS ?=

READERS_VENV = $(call venv,readers,test/readers/requirements.txt)

.PHONY: readers
readers: ## Measure how late clients of real registries notice a change, and what rollouts lose, in an hour; READERS='nginx gRPC' takes some.
	@$(call fill-venv,$(READERS_VENV),test/readers/requirements.txt)
	@go build -o bin/readers ./test/readers
	@PATH="$(READERS_VENV)/bin:$$PATH" READERS='$(READERS)' bin/readers

.PHONY: demo
demo: ## Show the main job on a real OpenKruise; REGISTRY=consul uses that driver, KEEP=1 keeps it running until Ctrl-C.
	@$(READY) demo
	@KEEP='$(KEEP)' REGISTRY='$(REGISTRY)' bin/demo

.PHONY: adopt $(ADOPT)
adopt: ## Show it where applications register themselves: REGISTRY=consul, eureka, nacos or zookeeper; APP=go, spring or dubbo on nacos, dubbo or spring on zookeeper.
	@$(READY) adopt
	@$(if $(filter dubbo,$(APP)),go mod download && $(REGISTRIES_CMD) get $(REGISTRY))
	@ADOPT=1 KEEP='$(KEEP)' REGISTRY='$(REGISTRY)' APP='$(APP)' $(if $(filter dubbo,$(APP)),hack/own-network.sh) bin/demo

$(ADOPT): adopt-%:
	@$(MAKE) --no-print-directory adopt REGISTRY=$(word 1,$(subst -, ,$*)) APP=$(word 2,$(subst -, ,$*))

# Empty runs all scenarios but durations, short the scenarios that CI runs, anything else the scenarios with this in their name.
E2E ?=
# A cluster with OpenKruise to run them on, instead of nodes of this machine.
E2E_KUBECONFIG ?=

.PHONY: e2e-remote
e2e-remote: ## Hold that E2E_KUBECONFIG works: one scenario on a cluster of this machine, as if it were another's.
	@$(MAKE) --no-print-directory e2e E2E=specified-delete E2E_KUBECONFIG=own

.PHONY: e2e-services
e2e-services: ## Count lost requests of clients that find pods by Kubernetes Services, in four of the scenarios of make e2e.
	@E2E_SERVICES=1 $(MAKE) --no-print-directory e2e

.PHONY: e2e
e2e: check-linux build cas ## Count lost requests on real nodes, as root with containerd (docs/e2e.md); E2E=short runs what CI runs.
	@$(READY) e2e
	@go build -o bin/e2e/app ./test/e2e/app
	@go build -tags '$(TAGS) nextrecord' -ldflags '$(LDFLAGS)' -o bin/e2e/manager-next ./cmd
	@$(TOOL) kustomize build test/e2e/deploy >bin/e2e/rollcall.yaml
	@$(TOOL) kustomize build test/e2e/evictions >bin/e2e/rollcall-evictions.yaml
	@$(TOOL) kustomize build test/e2e/services >bin/e2e/rollcall-services.yaml
	@E2E='$(E2E)' E2E_KUBECONFIG='$(E2E_KUBECONFIG)' bin/e2e/e2e

##@ Deploy

# kustomize wants the image's name in a file, and that must not be one of the checkout's.
bin/deploy/kustomization.yaml: FORCE
	@rm -rf bin/deploy && mkdir -p bin/deploy
	@cd bin/deploy && go tool -modfile=../../hack/tools/go.mod kustomize create --resources ../../config/default
	@cd bin/deploy && go tool -modfile=../../hack/tools/go.mod kustomize edit set image 'rollcall=$(IMG)'
FORCE:

.PHONY: kind-up kind-down
kind-up: ## Bring up a kind cluster with OpenKruise, Consul, Rollcall and a client that counts lost requests; CLUSTER=existing uses the current one.
	@hack/kind/up.sh

kind-down: ## Remove the cluster of kind-up.
	kind delete cluster --name rollcall

.PHONY: install
install: deploy ## The same as deploy: there are no CRDs to install.

# What a fresh checkout has is an image that no cluster can pull, and a registry that does not exist.
.PHONY: check-deploy
check-deploy:
	@[[ '$(origin IMG)' != file ]] || { echo 'deploy: set IMG to an image that the cluster can pull, or has loaded: IMG=rollcall:dev' >&2; exit 1; }
	@! grep -q 'endpoint: https://registry\.example\.com' config/default/configmap.yaml || { \
		echo 'deploy: set your registry in config/default/configmap.yaml, or driver: memory without an endpoint' >&2; exit 1; }

.PHONY: deploy
deploy: check-deploy bin/deploy/kustomization.yaml ## Deploy the image IMG to the cluster that kubectl points at.
	$(TOOL) kustomize build bin/deploy | $(KUBECTL) apply -f -

.PHONY: render
render: bin/deploy/kustomization.yaml ## Print what deploy applies, with the image IMG.
	@$(TOOL) kustomize build bin/deploy

.PHONY: undeploy
undeploy: ## Remove Rollcall from the cluster; docs/uninstall.md shows what to do first.
	$(TOOL) kustomize build config/default | $(KUBECTL) delete --ignore-not-found -f -

##@ Site

# The tag, or dev. MkDocs and what it needs are in a venv.
SITE_VERSION ?= $(shell git describe --tags --exact-match 2>/dev/null || echo dev)
SITE_VENV = $(call venv,site,hack/site/requirements.txt)
IN_VENV = PATH="$(SITE_VENV)/bin:$$PATH" NO_MKDOCS_2_WARNING=1 SITE_VERSION='$(SITE_VERSION)'

.PHONY: docs-site
docs-site: site-venv ## Build the site of docs/ into bin/site; a broken link, anchor or a page that nav lacks fails.
	@rm -rf bin/site && mkdir -p bin/site
	$(IN_VENV) mkdocs build --strict -f hack/site/mkdocs.yml -d '$(CURDIR)/bin/site/$(SITE_VERSION)'
	@echo '[{"version": "$(SITE_VERSION)", "title": "$(SITE_VERSION)", "aliases": []}]' >bin/site/versions.json

.PHONY: docs-site-test
docs-site-test: docs-site ## Check each page of the site, and its search, in a real Chromium as a phone; CHROMIUM is its path.
	$(IN_VENV) python hack/site/check.py bin/site

DASHBOARD = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rollcall/dashboard

.PHONY: docs-dashboard
docs-dashboard: ## Draw docs/pictures/dashboard-*.png from what the Prometheus at the URL PROMETHEUS, which scrapes every 5 s, has of the last 10 minutes; needs Node and Chromium.
	@[[ '$(PROMETHEUS)' ]] || { echo 'docs-dashboard: set PROMETHEUS to the URL of a Prometheus that scrapes Rollcall every 5 s: PROMETHEUS=http://localhost:9090' >&2; exit 1; }
	mkdir -p $(DASHBOARD) && cp hack/dashboard/* $(DASHBOARD)
	cd $(DASHBOARD) && npm install --loglevel=error --no-audit --no-fund --no-package-lock && \
		npx esbuild dashboard.jsx --bundle --format=esm --jsx=automatic --minify --outdir=. --allow-overwrite --log-level=warning \
			'--define:process.env.NODE_ENV="production"' --loader:.svg=text --loader:.ttf=empty
	go run ./hack/pictures dashboard docs/pictures '$(PROMETHEUS)' $(DASHBOARD)

# A candidate, whose version has a hyphen, is not the latest.
LATEST = $(if $(findstring -,$(SITE_VERSION)),,latest)

.PHONY: docs-site-publish
docs-site-publish: site-venv ## Add the site of SITE_VERSION to the branch gh-pages, as the latest unless it is a candidate, and push it.
	$(IN_VENV) mike deploy --push --update-aliases -F hack/site/mkdocs.yml '$(SITE_VERSION)' $(LATEST)
	$(if $(LATEST),$(IN_VENV) mike set-default --push --allow-empty -F hack/site/mkdocs.yml latest)

.PHONY: site-venv
site-venv:
	@$(call fill-venv,$(SITE_VENV),hack/site/requirements.txt)

##@ Release

# The platforms of a release; empty means all of them.
ONLY ?=

.PHONY: release
release: ## Make in dist/ what a release has: binaries, chart, install.yaml, SBOM, provenance, checksums; VERSION=v1.2.3, which the changelog must have.
	@go build -C hack/release -o '$(CURDIR)/bin/release' .
	@bin/release -version '$(VERSION)' -platforms '$(ONLY)'

.PHONY: verify-release
verify-release: ## Fail if a second clone in another folder makes a release of other bytes, or a file names another version.
	@ONLY='$(ONLY)' hack/verify-release.sh
