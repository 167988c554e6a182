#!/usr/bin/env bash
# Brings up a kind cluster with OpenKruise, Consul, Rollcall, a CloneSet and a client that counts lost requests.
#
# usage: hack/kind/up.sh
#        CLUSTER=existing hack/kind/up.sh   apply the manifests to the cluster of the current kubeconfig, which has OpenKruise and
#                                           can pull the image that hack/kind/rollcall names
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly cluster=${CLUSTER:-rollcall}
missing=0

# need says where to get a tool that is not there.
need() {
  command -v "$1" >/dev/null || {
    echo "kind-up: $1 is missing: get it from $2" >&2
    missing=1
  }
}

# running waits for Deployments in a namespace.
running() {
  kubectl -n "$1" rollout status --timeout=5m "${@:2}" || {
    echo "kind-up: the pods do not run: kubectl -n $1 describe pods shows why" >&2
    exit 1
  }
}

need kubectl https://kubernetes.io/docs/tasks/tools/
need go https://go.dev/dl/
if [[ $cluster != existing ]]; then
  need kind https://kind.sigs.k8s.io/docs/user/quick-start/#installation
  need helm https://helm.sh/docs/intro/install/
  engine=docker
  ! command -v docker >/dev/null && command -v podman >/dev/null && engine=podman
  need "$engine" "https://docs.docker.com/get-started/get-docker/, or podman from https://podman.io/docs/installation"
fi
[[ $missing -eq 0 ]] || exit 1

make build-plugin
if [[ $cluster != existing ]]; then
  [[ $engine == docker ]] || export KIND_EXPERIMENTAL_PROVIDER=podman
  kind get clusters | grep -qx "$cluster" || kind create cluster --name "$cluster" --wait 2m
  kubectl config use-context "kind-$cluster"
  helm upgrade --install kruise kruise --repo https://openkruise.github.io/charts --version '~1.9.0' --wait
  make docker-build CONTAINER_TOOL="$engine" IMG=docker.io/library/rollcall:dev
  "$engine" save -o bin/kind-image.tar docker.io/library/rollcall:dev
  kind load image-archive bin/kind-image.tar --name "$cluster"
fi

# hack/kind/rollcall/config.yaml begins so.
config=$(kubectl -n rollcall-system get configmap rollcall-config --ignore-not-found -o 'jsonpath={.data.config\.yaml}')
[[ $cluster != existing || -z $config || $config == "# Made by make kind-up"* ]] || {
  echo "kind-up: ConfigMap rollcall-config in namespace rollcall-system is not kind-up's: use another cluster, or uninstall" \
    "that Rollcall first (docs/uninstall.md)" >&2
  exit 1
}
kubectl apply -k hack/kind/rollcall
kubectl apply -f hack/kind/shop.yaml
running shop deployment/consul deployment/client
running rollcall-system deployment/rollcall

cat <<EOF

It runs. In one terminal, watch the client, which finds the pods in Consul:

  kubectl -n shop logs -f deployment/client

In another, update the pods and watch them:

  export PATH="$PWD/bin:\$PATH"
  kubectl -n shop patch cloneset web --type=json -p '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1.28"}]' &&
    kubectl rollcall rollout web -n shop --watch

EOF
