# Read by scheduler.sh and worker.sh. With SKETCHSELECT_TLS set to a folder made by certificates.sh, nobody is spoken to
# without a certificate of the same authority: the command line in `options` gets the files of that folder.
# shellcheck shell=bash
if [ -n "${SKETCHSELECT_TLS:-}" ]; then
  for name in ca cert key; do
    if [ ! -r "$SKETCHSELECT_TLS/$name.pem" ]; then
      echo "${0##*/}: SKETCHSELECT_TLS: $SKETCHSELECT_TLS/$name.pem cannot be read; certificates.sh makes it" >&2
      exit 2
    fi
  done
  export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true
  options+=(--protocol tls --tls-ca-file "$SKETCHSELECT_TLS/ca.pem")
  options+=(--tls-cert "$SKETCHSELECT_TLS/cert.pem" --tls-key "$SKETCHSELECT_TLS/key.pem")
fi
