"""JSON files with a digest of their content: a changed number is damage, and not another result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sketchselect.errors import DamagedFile

KEY = "digest"


def sealed(content: Mapping[str, Any], indent: int | None = None) -> str:
    """Return the text of a file with this content, and the digest of it all."""
    return json.dumps({**content, KEY: _digest(content)}, indent=indent, allow_nan=False) + "\n"


def unsealed(path: Path) -> dict[str, Any]:
    """Return the content of a file; raise `ValueError` where it is no JSON object, `DamagedFile` for another digest.

    Files of earlier versions have no digest, and are taken as they are. Differences in white space are none.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    if content.pop(KEY, None) not in (None, _digest(content)):
        raise DamagedFile(f"{path}: damaged, its content is not what was written; run the job again")
    return content


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps({name: value for name, value in content.items() if name != KEY}, sort_keys=True)
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
