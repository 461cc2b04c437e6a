#!/usr/bin/env bash
# download_dataset.sh FOLDER: the benchmark's text. Nothing is downloaded: the grammar that generates it is part of Marin.
set -euo pipefail
folder=$(realpath -m "${1:?download_dataset.sh FOLDER}")
cd "$(dirname "$0")/../.."
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
export MARIN_ROOT=$root/.marin MARIN_KEY=$root/key
marin -q init >&2
made=$(marin -q run experiments/exp006_rcp.py --only '^corpus/grammar_lm$' --json)
artifact=$(python -c 'import json, sys; print(json.load(sys.stdin)["steps"][0]["artifact"])' <<<"$made")
marin store get "$artifact" "$folder" >&2
