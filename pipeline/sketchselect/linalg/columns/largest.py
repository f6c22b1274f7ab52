"""Sorted largest values of every column: collected from rows, and merged."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sketchselect.linalg.arrays import Floats, read_only
from sketchselect.linalg.sparse.csr import arrays_of


@njit(nogil=True, cache=True)
def _insert(x, w, count, top, mass, weighted):  # type: ignore[no-untyped-def]
    """Insert one value into a descending run of `count` entries; a full run loses its last one."""
    size = top.shape[0]
    i = count if count < size else size - 1
    while i > 0 and (top[i - 1] < x or (weighted and top[i - 1] == x and mass[i - 1] < w)):
        top[i] = top[i - 1]
        if weighted:
            mass[i] = mass[i - 1]
        i -= 1
    top[i] = x
    if weighted:
        mass[i] = w


@njit(nogil=True, cache=True)
def _collect_rows(block, weights, top, mass, least, weighted):  # type: ignore[no-untyped-def]
    size = top.shape[1]
    for i in range(block.shape[0]):
        count = min(i, size)
        w = weights[i]
        for j in range(block.shape[1]):
            x = np.float64(block[i, j])
            enters = count < size or x > least[j] or (weighted and x == least[j] and w > mass[j, size - 1])
            if enters:
                _insert(x, w, count, top[j], mass[j], weighted)
                if count + 1 >= size:
                    least[j] = top[j, size - 1]


@njit(nogil=True, cache=True)
def _collect_entries(data, indices, indptr, top, mass, counts):  # type: ignore[no-untyped-def]
    size = top.shape[1]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            x = np.float64(data[k])
            if counts[j] < size or x > top[j, size - 1]:
                _insert(x, 1.0, min(counts[j], size), top[j], mass[j], False)
            counts[j] += 1


@njit(nogil=True, cache=True)
def _fill_zeros(n_rows, counts, top, out):  # type: ignore[no-untyped-def]
    """Write the implicit zeros between the positive and the negative entries."""
    for j in range(top.shape[0]):
        stored, zeros, k = min(counts[j], top.shape[1]), n_rows - counts[j], 0
        for i in range(out.shape[0]):
            if k < stored and (top[j, k] > 0.0 or zeros == 0):
                out[i, j] = top[j, k]
                k += 1
            else:
                out[i, j] = 0.0
                zeros -= 1


@njit(nogil=True, cache=True)
def _merge(left, right, left_mass, right_mass, out, out_mass, weighted):  # type: ignore[no-untyped-def]
    a = np.zeros(out.shape[1], dtype=np.int64)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            m = a[j]
            n = i - m
            first = n >= right.shape[0]
            if not first and m < left.shape[0]:
                first = left[m, j] > right[n, j] or (
                    left[m, j] == right[n, j] and (not weighted or left_mass[m, j] >= right_mass[n, j])
                )
            if first:
                out[i, j] = left[m, j]
                if weighted:
                    out_mass[i, j] = left_mass[m, j]
                a[j] = m + 1
            else:
                out[i, j] = right[n, j]
                if weighted:
                    out_mass[i, j] = right_mass[n, j]


def largest_of_rows(block: Floats, size: int, weights: Floats | None) -> tuple[Floats, Floats]:
    """Return the largest values of each column, descending, with the weights of their rows.

    `block` of shape (n_rows, p): Finite.
    `size`: Most values per column.
    `weights` of shape (n_rows,): Positive; of equal values those of the heavier rows are chosen.

    Returns
    -------
    values : array of shape (m, p)
        m is the smaller of `size` and n_rows.
    masses : array of shape (m, p), or (0, p) without weights
    """
    n, p = block.shape
    m = min(size, n)
    top, mass = np.zeros((p, m)), np.zeros((p, m if weights is not None else 0))
    row_weights = np.ones(n) if weights is None else weights
    _collect_rows(read_only(block), read_only(row_weights), top, mass, np.full(p, -np.inf), weights is not None)
    return np.ascontiguousarray(top.T), np.ascontiguousarray(mass.T)


def largest_of_entries(block: Any, size: int) -> tuple[Floats, Floats]:
    """Return `largest_of_rows` of canonical sparse rows without weights, from their stored entries alone."""
    n, p = block.shape
    m = min(size, n)
    top, counts = np.zeros((p, m)), np.zeros(p, dtype=np.int64)
    _collect_entries(*arrays_of(block), top, np.zeros((p, 0)), counts)
    out = np.zeros((m, p))
    _fill_zeros(n, counts, top, out)
    return out, np.zeros((0, p))


def merge_largest(left: tuple[Floats, Floats], right: tuple[Floats, Floats], size: int) -> tuple[Floats, Floats]:
    """Return the `size` largest values of two collections, equal values by descending row weight, then the left first.

    If only one collection has weights, those of the other are 1.
    """
    (a, a_mass), (b, b_mass) = left, right
    m = min(size, a.shape[0] + b.shape[0])
    weighted = bool(a_mass.shape[0] or b_mass.shape[0])
    if weighted:
        a_mass = a_mass if a_mass.shape[0] else np.ones(a.shape)
        b_mass = b_mass if b_mass.shape[0] else np.ones(b.shape)
    out = np.zeros((m, a.shape[1]))
    out_mass = np.zeros((m if weighted else 0, a.shape[1]))
    _merge(read_only(a), read_only(b), read_only(a_mass), read_only(b_mass), out, out_mass, weighted)
    return out, out_mass
