#!/usr/bin/env bash
# Start the scheduler of a plain Dask cluster. Stops with Ctrl-C or SIGTERM.
#
#   deploy/plain/scheduler.sh [HOST] [PORT]        default: 127.0.0.1 8786
#
# HOST is the one address to listen on: loopback, or an address of a private network. Whoever reaches this port can run
# code as this user, so 0.0.0.0 (every interface) is refused unless SKETCHSELECT_ANY_INTERFACE=1.
# With SKETCHSELECT_TLS set to a folder made by certificates.sh the address is tls://HOST:PORT, and only who has a
# certificate of the same authority is let in.
set -euo pipefail
host=${1:-127.0.0.1}
port=${2:-8786}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

case $host in
  0.0.0.0 | :: | "[::]" | "*")
    if [ "${SKETCHSELECT_ANY_INTERFACE:-}" != 1 ]; then
      echo "scheduler.sh: refusing to listen on every interface ($host): name one private address" >&2
      exit 2
    fi
    ;;
esac

# The preload is set by environment: beside --scheduler-file, --preload takes the next argument for the address.
export DASK_DISTRIBUTED__SCHEDULER__PRELOAD="[\"$here/preload.py\"]"
# A worker lost to the machine below it (a spot instance, a full node) is not the fault of the task it was running.
export DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=${SKETCHSELECT_ALLOWED_FAILURES:-10}

# --no-dashboard alone still opens the HTTP port on every interface, so its address is given too: /health, loopback only.
options=(--host "$host" --port "$port")
options+=(--no-dashboard --dashboard-address "127.0.0.1:${SKETCHSELECT_HTTP_PORT:-8787}")

# shellcheck source=/dev/null
. "$here/tls.sh"

exec dask scheduler "${options[@]}"
