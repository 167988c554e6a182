#!/usr/bin/env bash
# Updates the pods that make kind-up runs, back and forth for two minutes, and fails if the client lost a request.
#
# usage: hack/kind/rollout.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly namespace=shop end=$((SECONDS + 120))

# serves updates all pods to an image, and waits until they have it and are in rotation again.
serves() {
  kubectl -n "$namespace" patch cloneset web --type=json \
    -p "[{\"op\":\"replace\",\"path\":\"/spec/template/spec/containers/0/image\",\"value\":\"$1\"}]"
  bin/kubectl-rollcall rollout web -n "$namespace" --watch
}

rollouts=0
while [[ $SECONDS -lt $end ]]; do
  serves "nginx:1.$((27 + (rollouts + 1) % 2))"
  rollouts=$((rollouts + 1))
done
said=$(kubectl -n "$namespace" logs deployment/client --tail=1)
echo "$rollouts rollouts: $said"
[[ $said =~ \ ([0-9]+)\ requests\ answered,\ 0\ lost$ && ${BASH_REMATCH[1]} -gt 0 ]] || {
  echo "kind: the client lost requests, or sent none: kubectl -n $namespace logs deployment/client shows when" >&2
  exit 1
}
