#!/usr/bin/env bash
# Runs make targets one after the other, also after one that failed. At the end it prints how long each took, what was
# skipped (a target that checks nothing writes why into bin/results/TARGET.skipped), and last what failed: the tests by
# name or else the reason, and the log to look into.
# usage: hack/phases.sh TARGET...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

results=bin/results
mkdir -p "$results"
summary=""
skips=""
failures=""
for target in "$@"; do
  printf '==> %s\n' "$target"
  start=$SECONDS
  status=ok
  json=$results/${target#test-}.json
  skipped=$results/$target.skipped
  rm -f "$json" "$skipped"
  "${MAKE:-make}" --no-print-directory "$target" 2>&1 | tee "$results/$target.log" || status=FAILED
  if [[ $status == ok && -s $skipped ]]; then
    status=SKIPPED
    skips+="SKIPPED: make $target: $(<"$skipped")"$'\n'
  fi
  summary+=$(printf '%-18s %-7s %5d s' "$target" "$status" $((SECONDS - start)))$'\n'
  if [[ $status == FAILED ]]; then
    failures+="FAILED: make $target, see $results/$target.log"$'\n'
    if [[ -e $json ]]; then
      why=$(hack/results.sh failed "$json")
    else
      why=$(grep -aE '^[a-z]+: ' "$results/$target.log" | grep -avE '^(make|go: (downloading|finding|extracting))' | tail -n 1) || true # the last that a program of ours said
    fi
    failures+=$(sed 's/^/    /' <<<"$why")$'\n'
  fi
done
printf '\n%s%-26s %5d s\n' "$summary" total "$SECONDS"
[[ -z $skips ]] || printf '\n%s' "$skips"
[[ -z $failures ]] || { printf '\n%s' "$failures" && exit 1; }
