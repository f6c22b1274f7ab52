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
stopped=
child=
# Ctrl-C too is passed on as SIGTERM: what bash starts in the background does not hear SIGINT.
trap 'stopped=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true' TERM INT
for ((attempt = 1; ; attempt++)); do
  sketchselect run "$@" &
  child=$!
  # A signal may have come before there was a child to tell.
  [ -z "$stopped" ] || kill -TERM "$child" 2>/dev/null || true
  # `wait` also ends when a trap has run; what the job answered is asked for when it has gone.
  while kill -0 "$child" 2>/dev/null; do wait "$child" || true; done
  code=0
  wait "$child" || code=$?
  if [ "$code" != 75 ] || [ -n "$stopped" ] || [ "$attempt" -ge "$attempts" ]; then
    exit "$code"
  fi
  echo "run-job.sh: attempt $attempt of $attempts lost its cluster; resuming in $pause s" >&2
  sleep "$pause" &
  child=$!
  [ -z "$stopped" ] || kill "$child" 2>/dev/null || true
  wait "$child" || true
  if [ -n "$stopped" ]; then exit 143; fi
done
