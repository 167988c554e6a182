#!/usr/bin/env bash
# Runs make targets one after the other, whatever becomes of those before. In the end it prints how long each took, and
# last what failed: the tests by name, and the log to look into.
# usage: hack/phases.sh TARGET...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

results=bin/results
mkdir -p "$results"
summary=""
failures=""
for target in "$@"; do
  printf '==> %s\n' "$target"
  start=$SECONDS
  status=ok
  json=$results/${target#test-}.json
  rm -f "$json"
  "${MAKE:-make}" --no-print-directory "$target" 2>&1 | tee "$results/$target.log" || status=FAILED
  summary+=$(printf '%-18s %-6s %5d s' "$target" "$status" $((SECONDS - start)))$'\n'
  if [[ $status == FAILED ]]; then
    failures+="FAILED: make $target, see $results/$target.log"$'\n'
    [[ ! -e $json ]] || failures+=$(go run ./hack/results failed "$json" | sed 's/^/    /')$'\n'
  fi
done
printf '\n%s%-25s %5d s\n' "$summary" total "$SECONDS"
[[ -z $failures ]] || { printf '\n%s' "$failures" && exit 1; }
