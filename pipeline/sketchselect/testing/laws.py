"""Conformance suite for summaries: the merge laws on nasty matrices, with random splits and merge trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from sketchselect.errors import Incompatible
from sketchselect.linalg.csr import densify
from sketchselect.linalg.validation import Array
from sketchselect.summaries.base import Summary
from sketchselect.summaries.codec import decode, encode
from sketchselect.testing.nasty import nasty_matrices, nasty_sparse_matrices


class SummaryLaws:
    """The laws of a summary, tested on one description.

    Parameters
    ----------
    description : Summary
        The summary to test, with its parameters.
    check : callable ``(summary, X, y, w)``
        Raises AssertionError unless the summary is correct for these rows: to rounding for an exact summary, within the
        guarantee for a sketch. It is called for every merge tree, so it is the test of associativity.
    targets : callable ``X -> y``, optional
        Targets for summaries that use them.
    other : Summary, optional
        A summary that must not merge with `description`, such as one of the same kind with other parameters.
    matrices : mapping of name to array, optional
        Defaults to `nasty_matrices`.
    sparse : mapping of name to csr_array, optional
        Defaults to `nasty_sparse_matrices`; `check` receives them dense.
    """

    def __init__(
        self,
        description: Summary[Any],
        check: Callable[[Summary[Any], Array, Any, Array], None],
        *,
        targets: Callable[[Array], Any] | None = None,
        other: Summary[Any] | None = None,
        matrices: dict[str, Array] | None = None,
        sparse: dict[str, csr_array] | None = None,
    ) -> None:
        self.description = description
        self.check = check
        self.targets = targets
        self.other = other
        self.matrices = nasty_matrices() if matrices is None else matrices
        self.sparse = nasty_sparse_matrices() if sparse is None else sparse

    def verify(self, name: str, seed: int = 0) -> None:
        """Test every law on one matrix; raises AssertionError with the law."""
        X = self.matrices[name]
        y = None if self.targets is None else self.targets(X)
        rng = np.random.default_rng(seed)
        for weights, partitions in ((None, (2, 7)), (np.floor(4 * rng.random(X.shape[0])), (3, 7))):
            w = np.ones(X.shape[0]) if weights is None else weights
            whole = self.description.from_block(X, y, sample_weight=weights)
            self.check(whole, X, y, w)
            self.identity(whole)
            following = self.description.from_block(X, y, start=X.shape[0], sample_weight=weights)
            self.purity(whole, following)
            self.round_trip(whole, following)
            for n_parts in partitions:
                parts = [
                    self.description.from_block(
                        X[a:b],
                        None if y is None else y[a:b],
                        start=a,
                        sample_weight=None if weights is None else weights[a:b],
                    )
                    for a, b in _cuts(X.shape[0], n_parts, rng)
                ]
                for merged in _trees(parts, rng):
                    assert merged.n_rows == X.shape[0], "rows are lost or counted twice"
                    self.check(merged, X, y, w)
        self.layout(X, y)
        self.refusal(X, y)

    def verify_sparse(self, name: str, seed: int = 0) -> None:
        """Test that CSR rows are summarised like dense rows: alone, merged with dense parts, in any representation.

        `check` is called with the rows made dense.
        """
        X = self.sparse[name]
        dense = densify(X)
        y = None if self.targets is None else self.targets(dense)
        rng = np.random.default_rng(seed)
        for weights in (None, np.floor(4 * rng.random(X.shape[0]))):
            w = np.ones(X.shape[0]) if weights is None else weights
            whole = self.description.from_block(X, y, sample_weight=weights)
            self.check(whole, dense, y, w)
            following = self.description.from_block(X, y, start=X.shape[0], sample_weight=weights)
            self.purity(whole, following)
            self.round_trip(whole, following)
            parts = []
            for i, (a, b) in enumerate(_cuts(X.shape[0], 4, rng)):
                rows = X[a:b] if i % 2 == 0 else dense[a:b]
                part_y, part_w = None if y is None else y[a:b], None if weights is None else weights[a:b]
                parts.append(self.description.from_block(rows, part_y, start=a, sample_weight=part_w))
            for merged in list(_trees(parts, rng))[::2]:
                assert merged.n_rows == X.shape[0], "rows are lost or counted twice"
                self.check(merged, dense, y, w)
        reference = self.description.from_block(X, y)
        for variant in sparse_variants(X):
            other = self.description.from_block(variant, y)
            assert other == reference, f"another representation of the same rows gave other bits: {variant!r}"

    def identity(self, summary: Summary[Any]) -> None:
        """Merging with zero rows, on either side, changes no bit."""
        n_targets = getattr(summary.record, "n_targets", 0)
        empty = self.description.empty(summary.n_features, n_targets)
        assert empty.n_rows == 0, "the identity has rows"
        assert empty.merge(summary) == summary, "empty.merge(s) != s"
        assert summary.merge(empty) == summary, "s.merge(empty) != s"
        both = empty.merge(empty)
        assert both.n_rows == 0, "empty.merge(empty) has rows"

    def purity(self, summary: Summary[Any], following: Summary[Any]) -> None:
        """Merging with the rows that follow changes neither side, and gives the same bits again."""
        before = encode(summary), encode(following)
        first, second = summary.merge(following), summary.merge(following)
        assert (encode(summary), encode(following)) == before, "merge changed its input"
        assert first == second, "merge gave other bits the second time"
        assert first.n_rows == summary.n_rows + following.n_rows, "merge lost rows"

    def round_trip(self, summary: Summary[Any], following: Summary[Any]) -> None:
        """A file is read with the same bits, and the loaded summary merges to the same bits."""
        back = decode(encode(summary))
        assert back == summary, "decode(encode(s)) != s"
        assert back.merge(following) == summary.merge(following), "a loaded summary merges differently"

    def layout(self, X: Array, y: Any) -> None:
        """Byte order, memory order, alignment and read-only flags of the input change no bit."""
        reference = self.description.from_block(X, y)
        for variant in _layouts(X):
            other = self.description.from_block(variant, y)
            assert other == reference, f"another memory layout gave other bits: {variant.dtype} {variant.flags}"

    def refusal(self, X: Array, y: Any) -> None:
        """Summaries of different width or parameters do not merge, and the message names both widths."""
        mine = self.description.from_block(X, y)
        wider = np.hstack([X, X])
        try:
            mine.merge(self.description.from_block(wider, y))
        except Incompatible as error:
            assert str(X.shape[1]) in str(error) and str(wider.shape[1]) in str(error), "the message names no widths"
        else:
            raise AssertionError("summaries of different width were merged")
        if self.other is not None:
            try:
                mine.merge(self.other.from_block(X, y))
            except Incompatible:
                pass
            else:
                raise AssertionError("summaries with different parameters were merged")


def _cuts(n: int, n_parts: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return random consecutive ranges that cover 0..n; some may be empty."""
    edges = [0, *np.sort(rng.integers(0, n + 1, n_parts - 1)).tolist(), n]
    return list(pairwise(edges))


def _trees(parts: list[Summary[Any]], rng: np.random.Generator) -> Iterator[Summary[Any]]:
    """Yield the merge of all parts, in order, by a left-deep, a right-deep and a random tree, if these differ."""
    left = parts[0]
    for part in parts[1:]:
        left = left.merge(part)
    yield left
    if len(parts) < 3:
        return
    right = parts[-1]
    for part in parts[-2::-1]:
        right = part.merge(right)
    yield right
    if len(parts) < 4:
        return
    nodes = list(parts)
    while len(nodes) > 1:
        i = int(rng.integers(len(nodes) - 1))
        nodes[i : i + 2] = [nodes[i].merge(nodes[i + 1])]
    yield nodes[0]


def _layouts(X: Array) -> Iterator[Array]:
    """Yield the same values in Fortran order, byte-swapped, read-only, strided and unaligned."""
    yield np.asfortranarray(X)
    yield X.astype(X.dtype.newbyteorder(">"))
    frozen = X.copy()
    frozen.flags.writeable = False
    yield frozen
    yield np.repeat(X, 2, axis=0)[::2]
    raw = np.empty(X.nbytes + 1, dtype=np.uint8)
    unaligned = raw[1:].view(X.dtype).reshape(X.shape)
    unaligned[...] = X
    yield unaligned


def sparse_variants(X: csr_array) -> Iterator[Any]:
    """Yield the same matrix with unsorted indices, stored zeros, duplicate entries, long indices, as CSC, as matrix."""
    swapped = X.copy()
    for i in range(X.shape[0]):
        row = slice(X.indptr[i], X.indptr[i + 1])
        swapped.indices[row], swapped.data[row] = X.indices[row][::-1], X.data[row][::-1]
    yield csr_array((swapped.data, swapped.indices, X.indptr), shape=X.shape)
    zeros = csr_array((np.zeros_like(X.data), (X.indices + 1) % X.shape[1], X.indptr), shape=X.shape)
    entries = [(m.data, m.indices, np.repeat(np.arange(X.shape[0]), np.diff(m.indptr))) for m in (X, zeros)]
    data, columns, rows = (np.concatenate(both) for both in zip(*entries, strict=True))
    order = np.argsort(rows, kind="stable")
    yield csr_array((data[order], columns[order], 2 * X.indptr), shape=X.shape)
    yield csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)
    if X.dtype.kind == "f":
        ends = 2 * X.indptr
        yield csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), ends), shape=X.shape)
    yield X.tocsc()
    yield csr_matrix(X)
