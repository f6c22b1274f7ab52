"""One look at a scheduler's port before a client is made: with the wrong certificates that would only time out."""

from __future__ import annotations

import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

from sketchselect.errors import BadCluster

HANDSHAKE_SECONDS = 3.0
"""How long a scheduler may take to say its first word; one that takes longer is left to the client to wait for."""


def require_understood(address: str, security: Any = None) -> None:
    """Raise `BadCluster` at once where what listens at an address can never be spoken to in this way.

    That is: TLS on one side only, a certificate that the other side's authority has not signed, certificate files
    that cannot be used. Other schemes than tcp and tls, and addresses where nothing listens yet, are left alone.
    `security` is what the client will use; what Dask's configuration says by default.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "tls") or not parts.hostname or not parts.port:
        return
    context = _context(address, security) if parts.scheme == "tls" else None
    try:
        plain = socket.create_connection((parts.hostname, parts.port), timeout=HANDSHAKE_SECONDS)
    except OSError:
        return
    with plain:
        if context is not None:
            _require_tls(address, plain, context)
        elif _is_silent(plain) and _speaks_tls(parts.hostname, parts.port):
            raise BadCluster(
                f"{address}: this scheduler wants TLS; write tls:// and set execution.tls_ca, tls_cert and tls_key to "
                "the certificates of its cluster"
            )


def _context(address: str, security: Any) -> ssl.SSLContext:
    from distributed.security import Security

    try:
        context = (security or Security()).get_connection_args("client").get("ssl_context")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise BadCluster(
            f"{address}: the certificate files cannot be used ({reason}); tls_ca, tls_cert and tls_key are PEM files, "
            "and the key belongs to the certificate"
        ) from error
    if not isinstance(context, ssl.SSLContext):
        raise BadCluster(f"{address}: tls:// needs certificates; set execution.tls_ca, tls_cert and tls_key")
    return context


def _require_tls(address: str, plain: socket.socket, context: ssl.SSLContext) -> None:
    try:
        with context.wrap_socket(plain) as secure:
            # Whether our own certificate was accepted shows in the first word only, which is the scheduler's.
            secure.recv(1)
    except ssl.SSLCertVerificationError as error:
        raise BadCluster(
            f"{address}: the scheduler's certificate is not one of execution.tls_ca ({error.verify_message}); use the "
            "ca.pem of its cluster"
        ) from error
    except ssl.SSLError as error:
        reason = (error.reason or type(error).__name__).replace("_", " ").lower()
        if "alert" in reason:
            text = f"the scheduler refuses our certificate ({reason}); use cert.pem and key.pem of its cluster"
        else:
            text = f"what listens there does not speak TLS ({reason}); write tcp://, or start it with SKETCHSELECT_TLS"
        raise BadCluster(f"{address}: {text}") from error
    except OSError:
        return


def _is_silent(plain: socket.socket) -> bool:
    """Return whether nothing was said in time: a scheduler without TLS speaks first."""
    try:
        return not plain.recv(1)
    except OSError as error:
        return isinstance(error, TimeoutError)


def _speaks_tls(host: str, port: int) -> bool:
    """Return whether a TLS handshake is understood; nothing is sent that would need to be kept secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except ssl.SSLError as error:
        # An alert (no certificate, say) is TLS, too.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
