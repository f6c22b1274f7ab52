"""Counter-based random numbers, by (seed, stage, item) and never by order, chunking or worker; digests of content."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array, Floats

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the splitmix64 finaliser of each number, a pseudo-random bijection of 64-bit words."""
    z = (x + np.uint64(1)) * _GAMMA
    z ^= z >> np.uint64(30)
    z *= _MIX_1
    z ^= z >> np.uint64(27)
    z *= _MIX_2
    z ^= z >> np.uint64(31)
    return z


def derive_seed(seed: int, *stage: str | int) -> int:
    """Return the seed of one stage (and round) of a computation: splitmix64(seed XOR hash(stage))."""
    digest = hashlib.blake2b("/".join(map(str, stage)).encode(), digest_size=8).digest()
    word = np.array([(seed ^ int.from_bytes(digest, "little")) & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    return int(splitmix64(word)[0])


def digest(text: str, *contents: Array | str) -> str:
    """Return 32 hexadecimal digits that name a text, further texts, and the bytes of arrays."""
    state = hashlib.blake2b(text.encode(), digest_size=16)
    for content in contents:
        if isinstance(content, str):
            state.update(content.encode())
        elif content.size:
            state.update(np.ascontiguousarray(content).view(np.uint8).data)
    return state.hexdigest()


def fingerprint(*parts: Any) -> str:
    """Return 40 hexadecimal digits that name nested lists, mappings, texts, numbers and arrays (by content)."""
    text = json.dumps(parts, sort_keys=True, default=_plain, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        is_text = value.dtype.kind in "OUST"
        content = value.tolist() if is_text else hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return ["array", str(value.dtype), list(value.shape), content]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"no fingerprint for {type(value).__name__}")


def words_of(values: Array) -> NDArray[np.uint64]:
    """Return a 64-bit word for each number or text: of equal ones the same, in any array and numeric type."""
    if values.dtype.kind == "U":
        distinct, place = np.unique(values, return_inverse=True)
        digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in distinct.tolist()]
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)[place.ravel()]
    if values.dtype.kind != "f":
        return values.astype(np.int64).view(np.uint64)
    numbers = values.astype(np.float64)
    whole = (np.abs(numbers) < 2.0**63) & (numbers == np.floor(numbers))
    bits = numbers.view(np.int64)
    return np.where(whole, np.where(whole, numbers, 0.0).astype(np.int64), bits).view(np.uint64)


def uniforms(seed: int, items: NDArray[np.uint64]) -> Floats:
    """Return one uniform number in (0, 1) per item, with 53 random bits: ((z >> 11) + 0.5) 2^-53.

    Examples
    --------
    >>> import numpy as np
    >>> a = uniforms(7, np.arange(4, dtype=np.uint64))
    >>> b = uniforms(7, np.arange(2, 4, dtype=np.uint64))
    >>> bool((a[2:] == b).all())
    True
    """
    offset = np.uint64((seed * 0xD1342543DE82EF95) & 0xFFFFFFFFFFFFFFFF)
    z = splitmix64(items.astype(np.uint64) + offset)
    # The largest of these words would round up to 1.
    out: Floats = np.minimum(((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53, 1.0 - 2.0**-53)
    return out
