"""Certificates for a cluster that is reached over ``tls://``."""

from __future__ import annotations

import os
from typing import Any

from sketchselect.errors import BadParameter


def tls_security(ca: str, cert: str, key: str) -> Any:
    """Return what `connect` takes as its `security`: only encrypted connections, to whoever the CA vouches for.

    Parameters
    ----------
    ca, cert, key : path
        PEM files: the certificate authority, our certificate, and its key.

    Raises
    ------
    BadParameter
        If a file is not there.
    """
    from distributed.security import Security

    for name, path in (("tls_ca", ca), ("tls_cert", cert), ("tls_key", key)):
        if not os.path.isfile(path):
            raise BadParameter(f"{name}: {path} is not a file")
    return Security(tls_ca_file=ca, tls_client_cert=cert, tls_client_key=key, require_encryption=True)
