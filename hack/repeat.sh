#!/usr/bin/env bash
# Runs the unit tests and the scenarios N times with -race, each time in a new order, beside a load that takes every
# core. It prints a line for each run with its seed, which SHUFFLE=SEED repeats, and its outcome. It fails when one run
# failed.
# usage: hack/repeat.sh N [TARGET...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=${1:?say how often, such as hack/repeat.sh 20}
shift
[[ $runs =~ ^[1-9][0-9]*$ ]] || { echo "repeat: $runs is not a number of runs, such as 20" >&2; exit 2; }
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || targets=(test-unit test-integration)
logs=bin/results/repeat
rm -rf "$logs"
mkdir -p "$logs"

# load keeps one core busy until its parent has ended, in whatever way, or an hour is over.
load() {
  local parent=$1 end=$((SECONDS + 3600))
  while kill -0 "$parent" 2>/dev/null && [[ $SECONDS -lt $end ]]; do
    for ((i = 0; i < 200000; i++)); do :; done
  done
}

loads=()
start_load() {
  for ((core = 0; core < $(nproc); core++)); do
    load $$ &
    loads+=($!)
  done
}
stop_load() {
  [[ ${#loads[@]} -eq 0 ]] || { kill "${loads[@]}" && wait "${loads[@]}"; } 2>/dev/null || true
  loads=()
}
trap stop_load EXIT

"${MAKE:-make}" --no-print-directory servers
failed=0
for ((run = 1; run <= runs; run++)); do
  seed=$((RANDOM << 30 | RANDOM << 15 | RANDOM))
  log=$logs/$run.log
  start=$SECONDS
  outcome=ok
  start_load
  SHUFFLE=$seed hack/phases.sh "${targets[@]}" >"$log" 2>&1 || outcome=FAILED
  stop_load
  printf 'run %d of %d: SHUFFLE=%d, %d s, %s\n' "$run" "$runs" "$seed" $((SECONDS - start)) "$outcome"
  [[ $outcome == ok ]] && continue
  failed=$((failed + 1))
  sed -n '/^FAILED: /,$p' "$log" | sed 's/^/    /'
  for target in "${targets[@]}"; do
    cp "bin/results/$target.log" "$logs/$run-$target.log"
  done
done
printf '%d runs, %d failed; logs in %s\n' "$runs" "$failed" "$logs"
[[ $failed -eq 0 ]]
