#!/usr/bin/env bash
# Compare the speed of HEAD with that of an earlier commit: tests/benchmarks/guard.sh [COMMIT [asv options]]
# COMMIT is the last release without it, or where there is none the newest commit that is a week old. Both are installed and take turns; the
# exit code is not 0 where one of the ten kinds of work of asv/guard.py takes 1.25 times the processor time or more.
set -euo pipefail
cd "$(dirname "$0")"
base="${1:-$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-list -1 --before="1 week ago" HEAD)}"
base="${base:-$(git rev-list --max-parents=0 HEAD | tail -1)}"
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
python -m asv machine --yes --config asv.conf.json >/dev/null
exec python -m asv continuous --config "${ASV_CONF:-asv.conf.json}" --interleave-rounds --split --factor 1.25 \
  --show-stderr --bench "^guard\." "${@:2}" "$base" HEAD
