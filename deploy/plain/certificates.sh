#!/usr/bin/env bash
# Make what a cluster with TLS needs: a certificate authority of its own, and one certificate and key for scheduler,
# workers and whoever submits jobs. Whoever holds the key may use the cluster; everybody else is refused.
#
#   deploy/plain/certificates.sh FOLDER [HOST...]
#   deploy/plain/certificates.sh ~/cluster-tls 10.0.0.5 10.0.0.6 node7.example.org
#
# HOST are the addresses and names that scheduler and workers listen on (127.0.0.1 and localhost are always among them).
# SKETCHSELECT_TLS_DAYS (365) is how long the certificate is valid; afterwards run it again and restart the cluster.
# FOLDER must not hold certificates yet. ca.pem, cert.pem and key.pem are for every machine; the authority's own key is
# thrown away, so nobody can sign another certificate for this cluster.
set -euo pipefail
if [ $# -lt 1 ] || [ -z "$1" ] || [ "${1#-}" != "$1" ]; then
  echo "usage: certificates.sh FOLDER [HOST...]" >&2
  exit 2
fi
folder=$1
shift
days=${SKETCHSELECT_TLS_DAYS:-365}
case $days in
  "" | *[!0-9]* | 0*)
    echo "certificates.sh: SKETCHSELECT_TLS_DAYS must be a number of days, got '$days'" >&2
    exit 2
    ;;
esac
if ! command -v openssl >/dev/null; then
  echo "certificates.sh: openssl is not installed" >&2
  exit 1
fi
umask 077
mkdir -p "$folder"
for name in ca.pem cert.pem key.pem; do
  if [ -e "$folder/$name" ]; then
    echo "certificates.sh: $folder/$name is there already; delete it, or name another folder" >&2
    exit 1
  fi
done

names=
for host in 127.0.0.1 localhost "$@"; do
  case $host in
    "" | *[!0-9A-Za-z.:-]*)
      echo "certificates.sh: '$host' is not the name or address of a machine" >&2
      exit 2
      ;;
    *:*) kind=IP ;;
    *[!0-9.]*) kind=DNS ;;
    *) kind=IP ;;
  esac
  names=${names:+$names,}$kind:$host
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make() { # make WHAT COMMAND...: run openssl quietly, and say what it said only where it fails
  local what=$1
  shift
  if ! openssl "$@" 2>"$work/said"; then
    cat "$work/said" >&2
    echo "certificates.sh: $what could not be made" >&2
    exit 1
  fi
}
curve=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
make "the authority" req -x509 "${curve[@]}" -keyout "$work/ca.key" -out "$work/ca.pem" -days "$days" -sha256 \
  -subj "/CN=sketchselect cluster authority" -addext basicConstraints=critical,CA:TRUE,pathlen:0 \
  -addext keyUsage=critical,keyCertSign,cRLSign
make "the request" req "${curve[@]}" -keyout "$work/key.pem" -out "$work/request.pem" -subj "/CN=sketchselect cluster"
cat >"$work/extensions" <<EXTENSIONS
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectAltName = $names
EXTENSIONS
make "the certificate" x509 -req -in "$work/request.pem" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial \
  -out "$work/cert.pem" -days "$days" -sha256 -extfile "$work/extensions"

for name in ca cert key; do install -m 600 "$work/$name.pem" "$folder/$name.pem"; done
echo "$folder: ca.pem, cert.pem and key.pem, for $names, valid for $days days."
echo "Copy the folder to every machine over a safe way, keep it readable for its user only, and set SKETCHSELECT_TLS to it."
