#!/usr/bin/env bash
# Makes a release twice, each in a clone and a folder of its own, and fails where the bytes differ, or where a file names
# another version than that of the release. ONLY leaves out all platforms but these.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
commit=$(git rev-parse HEAD) # this checkout may move on meanwhile
for copy in one two/deeper; do
  git clone -q --no-checkout . "$scratch/$copy"
  git -C "$scratch/$copy" checkout -q "$commit"
  "${MAKE:-make}" --no-print-directory -C "$scratch/$copy" release VERSION=v0.1.0-check ONLY="${ONLY:-}"
done
diff -r "$scratch/one/dist" "$scratch/two/deeper/dist"
diff -r "$scratch/one/bin/image" "$scratch/two/deeper/bin/image"
DIST="$scratch/one/dist" VERSION=v0.1.0-check go test -C hack/release -count=1 ./...
cat "$scratch/one/dist/checksums.txt"
