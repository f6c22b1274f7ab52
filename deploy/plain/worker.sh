#!/usr/bin/env bash
# Start worker processes, one thread each. Stops with Ctrl-C or SIGTERM.
#
#   deploy/plain/worker.sh ADDRESS [PROCESSES] [MEMORY_EACH] [HOST]
#   deploy/plain/worker.sh tcp://127.0.0.1:8786 2 2GiB
#
# HOST is the one address the workers listen on (they send each other summaries). It defaults to the address that this
# machine uses to reach the scheduler; left to itself, a Dask worker listens on every interface.
# With SKETCHSELECT_TLS set to a folder made by certificates.sh, ADDRESS is tls://HOST:PORT.
# Each worker is watched by a nanny: above 95 % of its memory it is ended and started again.
set -euo pipefail
if [ $# -lt 1 ]; then
  echo "usage: worker.sh ADDRESS [PROCESSES] [MEMORY_EACH] [HOST]" >&2
  exit 2
fi
address=$1
processes=${2:-1}
memory=${3:-2GiB}
host=${4:-$(python3 - "$address" <<'PYTHON'
import socket
import sys
from urllib.parse import urlsplit

target = urlsplit(sys.argv[1])
if not target.hostname or not target.port:
    sys.exit(f"worker.sh: {sys.argv[1]!r} is not an address like tcp://10.0.0.5:8786")
family, kind, _, _, place = socket.getaddrinfo(target.hostname, target.port, type=socket.SOCK_DGRAM)[0]
with socket.socket(family, kind) as probe:
    probe.connect(place)  # sends nothing: it only asks the routing table
    print(probe.getsockname()[0])
PYTHON
)}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

export DASK_DISTRIBUTED__WORKER__PRELOAD="[\"$here/preload.py\"]"
# One BLAS thread in each process: the bits then do not depend on the number of cores, and processes do not fight.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
# OPENBLAS_CORETYPE, if it is set where jobs start, must be set here too: bits depend on the kernel.
# Dask's own value (64 KiB) turns off the reuse of large buffers, and every block is faulted in again.
export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-134217728} MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-33554432}

options=(--host "$host" --nworkers "$processes" --nthreads 1 --memory-limit "$memory")
# A worker that finds no scheduler for this long exits with code 1 instead of waiting for ever.
options+=(--death-timeout "${SKETCHSELECT_DEATH_TIMEOUT:-60}")
options+=(--no-dashboard --dashboard-address 127.0.0.1:0)
options+=(--local-directory "${SKETCHSELECT_SPILL_DIR:-${TMPDIR:-/tmp}}")

case $address in
  tls://*)
    if [ -z "${SKETCHSELECT_TLS:-}" ]; then
      echo "worker.sh: $address needs SKETCHSELECT_TLS, the folder that certificates.sh made" >&2
      exit 2
    fi
    ;;
  *)
    if [ -n "${SKETCHSELECT_TLS:-}" ]; then
      echo "worker.sh: SKETCHSELECT_TLS is set, so the address must begin with tls://, not be $address" >&2
      exit 2
    fi
    ;;
esac

# shellcheck source=/dev/null
. "$here/tls.sh"

exec dask worker "$address" "${options[@]}"
