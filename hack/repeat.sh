#!/usr/bin/env bash
# Runs the unit tests and the scenarios N times with -race, each time in a new order. The tests are built once, and two
# processes a core run them from one queue: the packages of several runs are each other's load. It prints a line for
# each run when it is whole, and fails when one failed. SHUFFLE=SEED with make test-unit repeats the order of a run.
# usage: hack/repeat.sh N
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=${1:?say how often, such as hack/repeat.sh 20}
[[ $runs =~ ^[1-9][0-9]*$ ]] || { echo "repeat: $runs is not a number of runs, such as 20" >&2; exit 2; }
logs=$PWD/bin/results/repeat
tests=$PWD/bin/repeat
cgo=0
[[ -z ${RACE-} ]] || cgo=1
rm -rf "$logs" "$tests"
mkdir -p "$logs" "$tests"

# list prints import path and folder of each package with tests but those of real registries; the scenarios, which take
# longest, come first.
list() {
  local format='{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}'
  go list -f "$format" ./test/integration
  go list -f "$format" ./... | grep -vE '/test/(integration|registries)[/ ]'
}

# test_one runs the tests of one package in its folder, as go test does, and ends its run when it is the last of it.
test_one() {
  local run=$1 seed=$2 binary=$3 folder=$4 name log outcome=ok
  name=$(basename "$binary")
  log=$logs/$run/$name.log
  (cd "$folder" && "$binary" -test.shuffle="$seed" -test.timeout=40m -test.parallel=8) &>"$log" || outcome=FAILED
  [[ $outcome == ok ]] || echo "$name" >>"$logs/$run/failed"
  echo "$name" >>"$logs/$run/ended"
  [[ $(wc -l <"$logs/$run/ended") -ge $packages ]] && mkdir "$logs/$run/whole" 2>/dev/null || return 0
  [[ ! -e $logs/$run/failed ]] || outcome=FAILED
  printf 'run %d: SHUFFLE=%d, %d packages, load %s, %s\n' \
    "$run" "$seed" "$packages" "$(cut -d' ' -f1 /proc/loadavg)" "$outcome"
}

"${MAKE:-make}" --no-print-directory servers
packages=0
while read -r package folder; do
  binary=$tests/${package//\//_}
  echo "repeat: building the tests of $package"
  CGO_ENABLED=$cgo go test -c ${RACE-} -o "$binary" "$package"
  echo "$binary $folder" >>"$tests/packages"
  packages=$((packages + 1))
done < <(list)

for ((run = 1; run <= runs; run++)); do
  seed=$((RANDOM << 30 | RANDOM << 15 | RANDOM))
  mkdir "$logs/$run"
  sed "s/^/$run $seed /" "$tests/packages"
done >"$tests/queue"
export -f test_one
export logs packages
xargs -P "$((2 * $(nproc)))" -L 1 bash -c 'test_one "$@"' test_one <"$tests/queue"

failed=0
for ((run = 1; run <= runs; run++)); do
  [[ -e $logs/$run/failed ]] || continue
  failed=$((failed + 1))
  while read -r name; do
    printf 'run %d, %s:\n' "$run" "$logs/$run/$name.log"
    grep -hE '^ *--- FAIL|^panic:|^WARNING: DATA RACE' "$logs/$run/$name.log" | sort | uniq -c || true
  done <"$logs/$run/failed"
done
printf '%d runs, %d failed; logs in %s\n' "$runs" "$failed" "$logs"
[[ $failed -eq 0 ]]
