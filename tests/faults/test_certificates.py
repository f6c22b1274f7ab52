"""Certificates that are not valid now, keys that nobody can open, and encryption that only one side asks for."""

import contextlib
import functools
import re
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import dask
import pytest

from sketchselect.errors import BadCluster
from sketchselect.execution.clusters import require_understood, tls_security

pytest.importorskip("cryptography")
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority():
    """The key of an authority."""
    return ec.generate_private_key(ec.SECP256R1())


def make(folder, authority, begin=-2 * DAY, end=2 * DAY, passphrase=None):
    """Write ca.pem, cert.pem and key.pem, valid from `begin` to `end` as seen from now; return their paths."""
    folder.mkdir()
    now, key = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
    host = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = {
        "ca": (authority, now - 9 * DAY, now + 9 * DAY, x509.BasicConstraints(ca=True, path_length=0)),
        "cert": (key, now + begin, now + end, host),
    }
    content = {}
    for name, (of, start, stop, extension) in signed.items():
        subject, issuer = (x509.Name([x509.NameAttribute(x509.OID_COMMON_NAME, n)]) for n in (name, "ca"))
        new = x509.CertificateBuilder(issuer, subject, of.public_key(), x509.random_serial_number(), start, stop)
        certificate = new.add_extension(extension, critical=name == "ca").sign(authority, hashes.SHA256())
        content[name] = certificate.public_bytes(serialization.Encoding.PEM)
    pem, how = serialization.Encoding.PEM, serialization.NoEncryption()
    if passphrase is not None:
        how = serialization.BestAvailableEncryption(passphrase)
    content["key"] = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, how)
    paths = [str(folder / f"{name}.pem") for name in content]
    for path, text in zip(paths, content.values(), strict=True):
        with open(path, "wb") as stream:
            stream.write(text)
    return paths


@contextlib.contextmanager
def listening(certificates=None):
    """Listen as a scheduler does, which sends first; yield the address."""
    wrap = contextlib.nullcontext
    if certificates is not None:
        ca, cert, key = certificates
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
        context.verify_mode, context.verify_flags = ssl.CERT_REQUIRED, ssl.VerifyFlags.VERIFY_DEFAULT
        context.load_cert_chain(cert, key)
        wrap = functools.partial(context.wrap_socket, server_side=True)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                plain, _ = server.accept()
                with contextlib.suppress(OSError), plain, wrap(plain) as stream:
                    stream.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{'tcp' if certificates is None else 'tls'}://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("theirs", "ours", "error"),
    [
        ((-2 * DAY, 2 * DAY), (-2 * DAY, 2 * DAY), None),
        ((-2 * DAY, -DAY), (-2 * DAY, 2 * DAY), r"is not valid now \(certificate has expired\); make new certificates"),
        ((DAY, 2 * DAY), (-2 * DAY, 2 * DAY), r"is not valid now \(certificate is not yet valid\); .* the clock"),
        ((-2 * DAY, 2 * DAY), (-2 * DAY, -DAY), r"refuses our certificate \(.*expired\); make new certificates"),
        ((-2 * DAY, 2 * DAY), (DAY, 2 * DAY), r"refuses our certificate .* which are valid now"),
    ],
)
def test_a_certificate_that_is_not_valid_now_is_said_to_be_so(theirs, ours, error, authority, tmp_path):
    security = tls_security(*make(tmp_path / "ours", authority, *ours))
    refused = contextlib.nullcontext() if error is None else pytest.raises(BadCluster, match=error)
    with listening(make(tmp_path / "theirs", authority, *theirs)) as address, refused:
        require_understood(address, security)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked(authority, tmp_path, capfd):
    ca, cert, key = make(tmp_path / "tls", authority, passphrase=b"secret")
    with pytest.raises(BadCluster, match=rf"{re.escape(key)} is locked with a passphrase.*openssl pkey -in"):
        require_understood("tls://127.0.0.1:1", tls_security(ca, cert, key))
    assert capfd.readouterr().err == ""


def test_a_scheduler_without_tls_where_tls_is_asked_for_is_not_called_out_of_reach(authority, tmp_path):
    security = tls_security(*make(tmp_path / "tls", authority))
    with listening() as address:
        require_understood(address)
        for given, setting in ((security, None), (None, True)):
            with (
                dask.config.set({"distributed.comm.require-encryption": setting}),
                pytest.raises(BadCluster, match=r"this scheduler has no TLS, which .*; start it with SKETCHSELECT_TLS"),
            ):
                require_understood(address, given)
