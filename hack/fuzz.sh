#!/usr/bin/env bash
# Runs every fuzz test for FUZZTIME. Go fuzzes one test of one package at a time. It would spend up to a minute on making
# one input smaller, and try no other meanwhile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

status=0
while IFS=: read -r file test; do
  echo "==== $test in $(dirname "$file") for $FUZZTIME"
  go test -run='^$' -fuzz="^$test\$" -fuzztime="$FUZZTIME" -fuzzminimizetime=2s "./$(dirname "$file")" || status=1
done < <(grep -rhoH --include='*_test.go' '^func Fuzz[A-Za-z]*' internal registry cmd | sed 's/func //')
exit $status
