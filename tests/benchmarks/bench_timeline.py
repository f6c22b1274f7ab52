"""The timeline by a scan over the tree against the same scores from the rows one partition after the other.

Run ``python tests/benchmarks/bench_timeline.py [n_points] [partition]`` on a quiet machine. TDT2 in the order of its
dates where it is at hand (SKETCHSELECT_DATA), rows of rank 20 with drift otherwise. A scan does about twice the merges
of a sequence; what it gains is that they, reading, and scoring run on all cores.
"""

import os
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import sketchselect as sks
from sketchselect.execution import Source
from sketchselect.execution.engine import source_partitions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.readers import open_matrix
from sketchselect.selectors import BaseSelector
from sketchselect.selectors.timelines import ScoreAt

sys.path.insert(0, str(Path(__file__).parent))
from timing import paired

DATA = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def rows() -> sp.csr_array | np.ndarray:
    """Return rows in the order of time."""
    path = DATA / "TDT2.npz"
    if path.exists():
        with np.load(path) as d:
            counts = sp.csr_array((d["data"], d["indices"], d["indptr"]), shape=tuple(d["shape"]))
            return counts.astype(np.float64)[np.argsort(d["t"], kind="stable")]
    rng = np.random.default_rng(0)
    X = 0.1 * rng.standard_normal((20_000, 2000))
    for half in (slice(0, 10_000), slice(10_000, None)):
        X[half] += rng.standard_normal((10_000, 20)) @ rng.standard_normal((20, 2000))
    return X


def sequential(X: sp.csr_array | np.ndarray, selector: BaseSelector, ends: set[int], partition: str) -> np.ndarray:
    """Return the scores after the rows that `ends` names, from one state that grows."""
    source = Source(open_matrix(X), prepare=("l2",))
    description = selector.summary_description(X.shape[1])
    source = replace(source, takes_sparse=description.accepts_sparse)
    score, edges = ScoreAt(selector, source.prepare_labels, None), source_partitions(source, partition).edges
    state, found = None, []
    with one_blas_thread():
        for a, b in pairwise(edges):
            part = description.from_block(source.block(a, b).values, start=a)
            state = part if state is None else state.merge(part)
            if b in ends:
                found.append(score(state)[0])
    return np.array(found)


def main(n_points: int = 20, partition: str = "1MiB") -> None:
    """Print the ratio, how far both agree, and what moved most."""
    X = rows()
    for half_life in (None, 1000.0):
        selector = sks.SketchedRidgeSelector(200, n_components=30, sketch_size=64, half_life=half_life)

        def scan(selector: BaseSelector = selector) -> sks.selectors.Timeline:
            return sks.timeline(X, selector, points=n_points, partition_bytes=partition)

        found = scan()
        ends = set(found.rows.tolist())
        other = sequential(X, selector, ends, partition)
        same = [
            np.intersect1d(np.argsort(-a)[:200], np.argsort(-b)[:200]).size / 200
            for a, b in zip(other, found.scores, strict=True)
        ]
        print(f"half_life {half_life}: {len(ends)} points; of the 200 selected, both have {np.mean(same):.1%}")
        for what, columns in (("rose", found.risers(8)), ("fell", found.fallers(8))):
            print(f"  {what}:", [(int(j), int(found.ranks[0, j]), int(found.ranks[-1, j])) for j in columns])
        ratio = paired(scan, lambda s=selector, e=ends: sequential(X, s, e, partition), repeats=3)
        print(" ", ratio.line("timeline: scan / sequential", "none: it depends on the cores"))


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, str), sys.argv[1:], strict=False)))
