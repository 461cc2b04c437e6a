#!/usr/bin/env bash
# run_and_time.sh RESULT.txt [KEY=VALUE]...: one result. Trains in phases of STEPS train steps (32) until the held-out loss is at
# the target, writes MLPerf's log to RESULT.txt and the seconds from run_start to run_stop to stdout. A run that would need more train
# steps than the contract allows (4096) ends there, as an aborted one, with status 1.
# SUBMISSION: org, platform, division and status, as a JSON object. The ledger is RESULT.root, a new one for each result:
# a seed is drawn once in a root.
set -euo pipefail
result=$(realpath -m "${1:?run_and_time.sh RESULT.txt [KEY=VALUE]...}")
shift
cd "$(dirname "$0")/../.."
steps=${STEPS:-32} submission=${SUBMISSION:-'{"division": "closed"}'}
export MARIN_ROOT=${result%.txt}.root
[ ! -e "$MARIN_ROOT" ] || { echo "$MARIN_ROOT is there: another result has drawn its seed in it" >&2; exit 1; }
marin mlperf table "$@" >/dev/null
marin -q init >&2
trained=0
marin -q train +benchmark=grammar_lm "$@" trainer.num_steps="$steps" >&2
while true; do
    marin -q export latest --mlperf "$result" --mlperf-submission "$submission" >&2
    if grep -q '"status": "success"' "$result"; then break; fi
    trained=$((trained + steps))
    if [ $((trained + steps)) -gt 4096 ]; then
        echo "not at the target after $trained train steps: the run is aborted" >&2
        exit 1
    fi
    marin -q train --continue latest phase.schedule=continue trainer.num_steps="$steps" >&2
done
python - "$result" <<'PYTHON'
import json
import sys

times = {}
for line in open(sys.argv[1], encoding="utf-8"):
    entry = json.loads(line.removeprefix(":::MLLOG "))
    times[entry["key"]] = entry["time_ms"]
print((times["run_stop"] - times["run_start"]) / 1000)
PYTHON
