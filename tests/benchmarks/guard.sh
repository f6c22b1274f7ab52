#!/usr/bin/env bash
# Compare the speed of HEAD with that of an earlier commit: tests/benchmarks/guard.sh [COMMIT [asv options]]
# COMMIT is the last release where it is not given; where there is none, the newest commit that is a week old, or the
# first of all. Both are installed, and take turns. The exit code is 1 where one of the ten kinds of work of asv/guard.py
# takes 1.25 times the processor time or more. BENCH, an expression, chooses among them; ASV_CONF is another file.
set -euo pipefail
cd "$(dirname "$0")"
base="${1:-$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-list -1 --before="1 week ago" HEAD)}"
base="${base:-$(git rev-list --max-parents=0 HEAD | tail -1)}"
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
asv machine --yes --config asv.conf.json >/dev/null
exec asv continuous --config "${ASV_CONF:-asv.conf.json}" --interleave-rounds --split --factor 1.25 \
  --show-stderr --bench "${BENCH:-^guard[.]}" "${@:2}" "$base" HEAD
