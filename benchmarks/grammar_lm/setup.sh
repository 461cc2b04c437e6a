#!/usr/bin/env bash
# setup.sh: once. The environment by requirements.lock, and MLPerf's logger and checkers beside it, every hash checked. In the
# benchmark's image (Dockerfile) both are there already.
set -euo pipefail
cd "$(dirname "$0")/../.."
python -c 'import marin, mlperf_logging' 2>/dev/null && exit 0
make environment >&2
.venv/bin/python -m uv pip install --quiet --python .venv/bin/python --no-deps --require-hashes -r docker/requirements-mlperf.lock
echo "now: source $PWD/.venv/bin/activate" >&2
