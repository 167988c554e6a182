#!/usr/bin/env bash
# Sums up what the tests wrote into files of go test -json, as gotestsum reads it.
#
# usage: hack/results.sh failed FILE...    show the tests that failed, with the first lines of each
#        hack/results.sh sum FILE=FLOOR... count the tests and the reasons of those skipped; with fewer than FLOOR that
#                                          passed in a file, the run fails. The last line is for scripts: passed, failed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# again reads a file again, with these flags of gotestsum, which fails where a test did.
again() {
  go tool -modfile=hack/tools/go.mod gotestsum --ignore-non-json-output-lines "${@:2}" --raw-command -- cat "$1" 2>/dev/null || true
}

case ${1-} in
failed)
  for file in "${@:2}"; do
    # A package's line has the seed of its order, for SHUFFLE=. Where one panics, all that were running have failed.
    again "$file" --format pkgname --hide-summary=skipped |
      awk '/^=== FAIL/ {lines = 9} /^(=== [A-Z][a-z]|DONE)/ {lines = 0} /^✖/ || lines-- > 0 {print substr($0, 1, 300)}' | head -n 100 || true
  done
  ;;
sum)
  passed=0 failed=0 short=""
  for wanted in "${@:2}"; do
    file=${wanted%=*}
    # shellcheck disable=SC2016 # what the variables have is known after the run
    read -r good bad skipped < <(again "$file" --format none --hide-summary=all --post-run-command \
      'bash -c "echo $((TESTS_TOTAL - TESTS_FAILED - TESTS_SKIPPED)) $TESTS_FAILED $TESTS_SKIPPED"' | tail -n 1) || {
      echo "results: gotestsum finds nothing in $file" >&2
      exit 1
    }
    name=$(basename "$file" .json)
    printf '%-16s %5d passed, %d failed, %d skipped\n' "$name" "$good" "$bad" "$skipped"
    again "$file" --format none --hide-summary=failed,errors | sed -nE 's/^ +[^ ]+\.go:[0-9]+: (\w+ skipped: )?/skipped: /p' |
      sort | uniq -c
    [[ $good -ge ${wanted##*=} ]] ||
      short+="results: $name: $good tests passed, and there must be ${wanted##*=}: what became of the others? If tests were removed on purpose, lower the floor"$'\n'
    passed=$((passed + good)) failed=$((failed + bad))
  done
  echo "$passed $failed"
  printf %s "$short" >&2
  [[ -z $short ]]
  ;;
*)
  echo 'results: no command: write failed FILE, or sum FILE=FLOOR, with one file or several' >&2
  exit 2
  ;;
esac
