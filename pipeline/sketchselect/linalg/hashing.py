"""Counter-based random numbers, by (seed, stage, item) and never by order, chunking or worker; digests of content.

Samples are the items of smallest hashed key, the same for any blocks, order and merge tree.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.csr import densify
from sketchselect.linalg.validation import Array, Floats, is_csr

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


MISSING_LEVEL = -1.0
"""Code of a missing text; those of others are 0 or more."""

_CODE_BITS = 52


def level_codes(texts: Sequence[str]) -> Floats:
    """Return a code for each text, a whole number below 2^52: the same in any order, file and process.

    Two of n texts have the same code with a probability below n^2 / 2^53: of ten thousand, one in 10^8.

    Examples
    --------
    >>> codes = level_codes(["red", "blue", "red"])
    >>> bool(codes[0] == codes[2] != codes[1]), level_codes(["red"])[0] == codes[0]
    (True, np.True_)
    """
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    words = np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
    return (words >> np.uint64(64 - _CODE_BITS)).astype(np.float64)


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
    return np.minimum(((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53, 1.0 - 2.0**-53)


def exponential_keys(seed: int, items: NDArray[np.uint64], rates: Floats) -> Floats:
    """Return the key ``-log(u_i) / rate_i`` of each item, u_i hashed from seed and item; infinite where the rate is 0.

    Of any items, item i has the smallest key with a probability in proportion to its rate.
    Source: the exponential race; Efraimidis and Spirakis 2006.
    """
    keys = np.full(rates.shape, np.inf)
    heavy = rates > 0
    with np.errstate(over="ignore"):
        keys[heavy] = -np.log(uniforms(seed, items[heavy])) / rates[heavy]
    return keys


def smallest_keys(keys: Floats, items: NDArray[Any], size: int | None, below: float = np.inf) -> NDArray[np.intp]:
    """Return the positions of the `size` (None: all) smallest keys less than `below`, by key and then by item.

    Merged samples are bottom-k samples of all rows: the smallest keys of a union are among the smallest of its parts.
    Cost: linear in the number of keys, and a sort of those returned. Source: Cohen and Kaplan 2007.

    Examples
    --------
    >>> import numpy as np
    >>> smallest_keys(np.array([0.5, 0.1, np.inf, 0.1]), np.array([7, 9, 8, 2]), 2).tolist()
    [3, 1]
    """
    places = np.flatnonzero(keys < below)
    if size is not None and places.size > size:
        places = places[keys[places] <= np.partition(keys[places], size - 1)[size - 1]]
    return places[np.lexsort((items[places], keys[places]))][:size]


@dataclass(frozen=True)
class KeyedRows:
    """Rows with the smallest keys; ties by row index. Which rows these are does not depend on the partitions."""

    keys: Floats  # shape (m,): Ascending
    rows: NDArray[np.int64]  # shape (m,): Global row indices
    points: Floats  # shape (m, n_features): Their values, float64
    weights: Floats  # shape (m,): Their weights

    def merge(self, other: KeyedRows, size: int | None = None, below: float = np.inf) -> KeyedRows:
        """Return the sample of the rows of both: the `size` smallest keys, and of them those below a limit."""
        return smallest_rows(
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.points, other.points]),
            np.concatenate([self.weights, other.weights]),
            size,
            below,
        )


def smallest_rows(
    keys: Floats, rows: NDArray[np.int64], values: Any, weights: Floats, size: int | None, below: float = np.inf
) -> KeyedRows:
    """Return the `size` rows (None: all) of smallest key below a limit."""
    order = smallest_keys(keys, rows, size, below)
    points = densify(values[order]) if is_csr(values) else values[order]
    return KeyedRows(keys[order], rows[order], points.astype(np.float64), weights[order])


def draw_columns(probabilities: Floats, n_draws: int, seed: int) -> NDArray[np.int64]:
    """Return columns drawn with replacement, shape (n_draws,); draw i depends on (seed, i) alone.

    Columns of probability 0 are never drawn.

    Examples
    --------
    >>> import numpy as np
    >>> draw_columns(np.array([0.0, 1.0, 0.0]), 4, seed=7).tolist()
    [1, 1, 1, 1]
    """
    cumulative = np.cumsum(probabilities)
    draws = uniforms(seed, np.arange(n_draws, dtype=np.uint64)) * cumulative[-1]
    # Rounding may carry a draw past the last column of positive probability.
    last = np.flatnonzero(probabilities)[-1]
    drawn: NDArray[np.int64] = np.minimum(np.searchsorted(cumulative, draws, "right"), last).astype(np.int64)
    return drawn


def draw_weights(probabilities: Floats, drawn: NDArray[np.int64]) -> Floats:
    """Return ``s_i^2 = (draws of i) / (n_draws p_i)``, summed over repetitions, shape (n_columns,).

    For any B with as many columns, ``E ||B Omega S||_F^2 = ||B||_F^2``; with p_i = ||v_i||^2 / k and
    ``r > 4 k log(20 k)`` draws, ``sigma_k^2(V' Omega S) >= 1 - sqrt(4 k log(20 k) / r)`` with probability 0.9.
    Source: Boutsidis and Magdon-Ismail 2012, Algorithm 3 and Lemma 9 (Rudelson and Vershynin 2007; constants of
    Magdon-Ismail 2010).
    """
    counts = np.bincount(drawn, minlength=probabilities.size)
    return counts / np.where(counts > 0, probabilities / probabilities.sum() * max(drawn.size, 1), 1.0)


def gaussians(seed: int, shape: tuple[int, int]) -> Floats:
    """Return standard normal numbers (Box and Muller); each depends on (seed, position) alone."""
    size = shape[0] * shape[1]
    u = uniforms(seed, np.arange(2 * size, dtype=np.uint64))
    values: Floats = np.sqrt(-2.0 * np.log(u[:size])) * np.cos(2.0 * np.pi * u[size:])
    return values.reshape(shape)


def approximate_directions(image: Floats, multiply: Callable[[Floats], Floats], n_directions: int) -> Floats:
    """Return approximate top right singular vectors Z of a matrix B, shape (n_columns, at most n_directions).

    With ``image = B'N``, N standard normal with k + ceil(k / epsilon) + 1 columns,
    ``E ||B - B Z Z'||_F^2 <= (1 + epsilon) ||B - B_k||_F^2``.

    `image` of shape (n_columns, m): Random combinations of the rows of B; ``B'B N``, after a step of subspace
        iteration, is valid too.
    `multiply`: Returns ``B'B M`` for M of shape (n_columns, m).
    `n_directions`: k.
    Cost: 2 m products with B, and n m^2 flops.
    Source: Boutsidis, Drineas and Magdon-Ismail 2011 (arXiv 1103.0995), Lemma 11; Halko, Martinsson and Tropp 2011.
    """
    left, s, _ = np.linalg.svd(image, full_matrices=False)
    basis = left[:, s > image.shape[0] * np.finfo(np.float64).eps * float(s.max(initial=0.0))]
    values, turned = np.linalg.eigh(basis.T @ multiply(basis))
    keep = values > image.shape[0] * np.finfo(np.float64).eps * float(values.max(initial=0.0))
    directions: Floats = basis @ turned[:, keep][:, ::-1][:, :n_directions]
    return directions


def combinations(n_directions: int, epsilon: float) -> int:
    """Return the number of random combinations of rows for `approximate_directions`: k + ceil(k / epsilon) + 1."""
    return n_directions + int(np.ceil(n_directions / epsilon)) + 1
