#!/usr/bin/env bash
# init_datasets.sh FOLDER: once. The benchmark's text in FOLDER, every file checked. A result makes it anew in its own root, from the
# same grammar: nothing that is timed reads FOLDER.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
"$here/download_dataset.sh" "${1:?init_datasets.sh FOLDER}"
"$here/verify_dataset.sh" "$1"
