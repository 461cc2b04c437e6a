#!/usr/bin/env bash
# verify_dataset.sh FOLDER: are these the benchmark's files, every one, and no other?
set -euo pipefail
sums=$(realpath "$(dirname "$0")/dataset.sha256")
cd "${1:?verify_dataset.sh FOLDER}"
sha256sum --check --strict "$sums"
others=$(comm -13 <(awk '{print $2}' "$sums" | sort) <(find . -type f -printf '%P\n' | sort))
[ -z "$others" ] || { echo "not of the data set: $others" >&2; exit 1; }
