#!/usr/bin/env bash
# Run a job, and run it again where that resumes it (exit code 75: the cluster was lost), at most five times.
#
#   run-job.sh JOB.toml [OPTIONS OF `sketchselect run`]
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "usage: run-job.sh JOB.toml [options]" >&2
  exit 2
fi
attempts=${SKETCHSELECT_ATTEMPTS:-5}
pause=${SKETCHSELECT_PAUSE:-20}
child=
# Ctrl-C too is passed on as SIGTERM: what bash starts in the background does not hear SIGINT.
trap '[ -z "$child" ] || kill -TERM "$child"' TERM INT
for ((attempt = 1; ; attempt++)); do
  code=0
  sketchselect run "$@" &
  child=$!
  # `wait` also ends when a trap has run; the second one waits for the job to tidy up.
  wait "$child" || code=$?
  if kill -0 "$child" 2>/dev/null; then
    code=0
    wait "$child" || code=$?
  fi
  child=
  if [ "$code" != 75 ] || [ "$attempt" -ge "$attempts" ]; then
    exit "$code"
  fi
  echo "run-job.sh: attempt $attempt of $attempts lost its cluster; resuming in $pause s" >&2
  sleep "$pause"
done
