#!/usr/bin/env bash
# Runs make targets one after the other, and prints at the end how long each took. It stops at the first that fails.
# usage: hack/phases.sh TARGET...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

summary=""
finish() {
  printf '\n%s%-25s %5d s\n' "$summary" total "$SECONDS"
}

for target in "$@"; do
  printf '==> %s\n' "$target"
  start=$SECONDS
  status=ok
  "${MAKE:-make}" --no-print-directory "$target" || status=FAILED
  summary+=$(printf '%-18s %-6s %5d s' "$target" "$status" $((SECONDS - start)))$'\n'
  if [[ $status == FAILED ]]; then
    finish
    exit 1
  fi
done
finish
