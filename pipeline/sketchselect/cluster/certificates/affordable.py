"""The number of blocks that a certificate may solve beside a run: a function of the data's shape and the job alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sketchselect._text import format_seconds
from sketchselect.cluster.certificates.block import BlockOptions
from sketchselect.cluster.certificates.closest import sketch_rows
from sketchselect.execution import Source
from sketchselect.summaries import BlockBound

SHARE = 0.2
"""Share of the reckoned seconds of a run that its certificate may take."""

LEAST_SECONDS = 10.0
"""Reckoned seconds that it may take in any case: all blocks of some ten thousand rows."""

FEWEST_BLOCKS = 8
"""A sample of fewer solved blocks proves less than the spectrum, so none is solved."""

CONFIDENCE = 0.99
"""Probability of a bound from a sample of blocks, where the job names none."""

LARGEST_SAMPLE = 0.9
"""Share of the blocks from which all are solved: little is saved by a sample, and a proof is lost."""

MOST_NBYTES = 1 << 30
"""Memory of a block above which none is solved."""

PRODUCTS, REDUCTIONS, ROUNDS, BYTES = 20e9, 7e9, 5e9, 2e9
"""What a core is reckoned to do in a second: flops of a matrix product, of an eigenvalue problem and of a round of the
dual method or of k-means, and bytes read. Constants, so that no clock decides the bits of a result."""

_EVALUATIONS, _ITERATIONS, _ROUNDS = 6, 20, 100
"""Eigenvalue problems of a block, iterations of a start of k-means, rounds of the dual method."""


@dataclass(frozen=True)
class Affordable:
    """What a certificate solves, and what it is reckoned to cost.

    `description`: Of the summary; None where blocks are too dear.
    `confidence`: Of its bound; None where all blocks are solved.
    `n_blocks`: Blocks of all rows, as far as known before the pass; 0 where the job says what is solved.
    `n_solved`: Expected number that is solved.
    `cost_share`: Reckoned seconds of the certificate over those of the run without it.
    `seconds`: Of one core, as reckoned.
    """

    description: BlockBound | None = None
    confidence: float | None = None
    n_blocks: int = 0
    n_solved: int = 0
    cost_share: float = 0.0
    seconds: float = 0.0

    @property
    def is_automatic(self) -> bool:
        """Whether the number of blocks was reckoned, and not asked for."""
        return self.n_blocks > 0

    def sentence(self) -> str:
        """Return what is solved in words.

        Examples
        --------
        >>> Affordable(n_blocks=3).sentence()
        'certificate: from the spectrum alone, as blocks of rows cost too much beside this run'
        """
        if self.description is None:
            return "certificate: from the spectrum alone, as blocks of rows cost too much beside this run"
        solved = "all" if self.confidence is None else f"about {self.n_solved} of"
        cost = f"about {format_seconds(self.seconds)} of one core"
        if self.cost_share < 1.0:
            cost += f", {100 * self.cost_share:.0f} % of what this run is reckoned to cost without them"
        return f"certificate: {solved} {self.n_blocks} blocks of rows are solved, for {cost}"


def affordable_blocks(
    source: Source, n_selected: int, n_clusters: int, n_starts: int, options: BlockOptions, *, every: bool = False
) -> Affordable:
    """Return which blocks of rows a certificate solves beside a run, by reckoned operations.

    As many as fit into `SHARE` of the run or `LEAST_SECONDS`; all where those are nearly all. The others contribute
    their spectral bound, unless that takes more than half of what there is: a sample of twice as many then proves more.

    `source`: The prepared rows, all columns.
    `n_selected`, `n_clusters`, `n_starts`: Columns, clusters and starts of k-means.
    `options`: Rows of a block, random state, and confidence of a sample.
    `every`: Whether all blocks are solved, whatever that takes.
    """
    n, p, k = source.n_rows, source.n_columns, n_clusters
    entries, nbytes = float(n) * p, 8.0 * n * p
    if (offsets := source.matrix.entry_offsets) is not None:
        entries, nbytes = float(offsets[-1]), 12.0 * float(offsets[-1])
    run = nbytes / BYTES + 4 * entries * sketch_rows(k) / PRODUCTS
    run += n_starts * _ITERATIONS * 2.0 * n * n_selected * k / ROUNDS + 2 * entries / ROUNDS
    n_blocks = max(1, n // options.block_rows)
    size = n / n_blocks
    spectrum = 2 * size**2 * p / PRODUCTS + 4 / 3 * size**3 / REDUCTIONS
    solved = spectrum + _EVALUATIONS * 4 / 3 * size**3 / REDUCTIONS + _ROUNDS * 6 * size**2 * k / ROUNDS
    reading = nbytes / BYTES
    budget = max(SHARE * run, LEAST_SECONDS) - reading
    description = BlockBound(k, options.block_rows, seed=options.random_state)
    too_large = 8 * (2 * size * p + 12 * size**2) > MOST_NBYTES
    spectral = n_blocks * spectrum <= budget / 2
    spent = n_blocks * spectrum if spectral else 0.0
    each = solved - spectrum if spectral else solved
    count = math.floor((budget - spent) / each)
    if every or (count >= LARGEST_SAMPLE * n_blocks and not too_large):
        seconds = reading + n_blocks * solved
        return Affordable(description, None, n_blocks, n_blocks, seconds / run, seconds)
    if count < FEWEST_BLOCKS or too_large:
        return Affordable(n_blocks=n_blocks)
    seconds = reading + spent + count * each
    description = BlockBound(k, options.block_rows, count / n_blocks, options.random_state, spectral)
    confidence = CONFIDENCE if options.confidence is None else options.confidence
    return Affordable(description, confidence, n_blocks, count, seconds / run, seconds)
