#!/usr/bin/env bash
# Fails if `make generate` would change a file. It generates in a copy, so it neither needs a committed tree nor touches
# the one it checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/before" "$scratch/after"
tar --exclude=./.git --exclude=./bin -cf - . | tar -xf - -C "$scratch/before"
cp -a "$scratch/before/." "$scratch/after"
# Removed so that a file that is no longer generated shows as a difference.
rm -f "$scratch/after/config/rbac/role.yaml"

"${MAKE:-make}" --no-print-directory -C "$scratch/after" generate >"$scratch/log" 2>&1 || {
  cat "$scratch/log" >&2
  echo "make generate failed" >&2
  exit 1
}
if ! (cd "$scratch" && diff -ruN before after); then
  echo "Generated files are out of date. Run: make generate" >&2
  exit 1
fi
