"""The block certificate: a pass over the rows that bounds the optimum far more closely than the spectrum does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sketchselect._text import format_seconds
from sketchselect.cluster.certificates.certificate import Certificate, made_certificate
from sketchselect.cluster.certificates.spectral import sketch_rows, underflow
from sketchselect.errors import BadParameter
from sketchselect.execution import Result, Source, Statistics, summarize_source
from sketchselect.execution.engine import PassOptions
from sketchselect.linalg.validation import require_number, require_seed
from sketchselect.readers import DEFAULT_PARTITION_BYTES
from sketchselect.readers.base import ENTRY_NBYTES, accepted_size
from sketchselect.summaries import BlockBound, Bundle, Summary
from sketchselect.summaries.block_bound import MOST_BLOCKS

SAMPLED_SHARE = 0.25  # Share of the blocks that are solved where a probability is enough
BLOCKS_PER_PARTITION = 8  # Blocks that a partition should have, so that the rows of a block come from many places


@dataclass(frozen=True)
class BlockOptions:
    """Which blocks of rows are solved; `certify`, `certify_labels`, the command and the job key all take these.

    This class has the defaults; `certify` documents the options.

    Examples
    --------
    >>> BlockOptions(confidence=0.99).chosen(), BlockOptions(confidence=0.99).description(3).fraction
    ({'confidence': 0.99}, 0.25)
    """

    block_rows: int = 400
    confidence: float | None = None
    fraction: float | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        require_confidence(self.confidence)
        require_seed(self.random_state, "random_state")

    def chosen(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, as keywords."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    def dealing_only(self) -> bool:
        """Return whether every option but the seed has its default."""
        return not set(self.chosen()) - {"random_state"}

    def require_unused(self, why: str, *allowed: str) -> None:
        """Raise `BadParameter` if an option that would be ignored was set; `allowed` names the others."""
        require_unused(self.chosen(), why, *allowed)

    def description(self, n_clusters: int) -> BlockBound:
        """Return the description of the summary behind a block certificate."""
        options = asdict(self)
        confidence, options["seed"] = options.pop("confidence"), options.pop("random_state")
        if self.fraction is None:
            options["fraction"] = 1.0 if confidence is None else SAMPLED_SHARE
        return BlockBound(n_clusters, **options)


def require_unused(chosen: Mapping[str, Any], why: str, *allowed: str) -> None:
    """Raise `BadParameter` naming the options that were set and are not in `allowed`."""
    if names := [name for name in chosen if name not in allowed]:
        raise BadParameter(f"certify: {', '.join(names)} is {why}; leave it out")


def block_pass(
    rows: Source, description: Summary[Any], options: PassOptions, stage: str = "block certificate"
) -> Result[Summary[Any]]:
    """Make the pass over rows that a `BlockBound`, or a Bundle with one, needs: partitions hold several blocks."""
    size = block_partition_bytes(description, rows)
    return summarize_source(rows, description, options.but(partition_bytes=size), stage=stage)


def block_partition_bytes(description: Summary[Any], source: Source) -> int:
    """Return the size of partitions: `BLOCKS_PER_PARTITION` blocks, or the default size, but at most `MOST_BLOCKS`.

    Larger where chunks are much taller.
    """
    bounds = description.values() if isinstance(description, Bundle) else [description]
    block = max(getattr(member, "block_rows", 0) for member in bounds)
    row = 8.0 * source.n_columns
    entries = source.matrix.entry_offsets
    is_sparse = description.accepts_sparse and entries is not None and replace(source, takes_sparse=True).is_sparse
    if is_sparse and entries is not None:
        row = ENTRY_NBYTES * float(entries[-1]) / max(source.n_rows, 1)
    size = DEFAULT_PARTITION_BYTES
    if block:
        size = min(max(size, int(BLOCKS_PER_PARTITION * block * row)), int(MOST_BLOCKS * block * row))
    return size if is_sparse else accepted_size(source.matrix, size)


def blocks_certificate(
    bound: BlockBound, objective: float, confidence: float | None, began: float, stats: Statistics | None = None
) -> Certificate:
    """Return the certificate of a finished `BlockBound`.

    Parameters
    ----------
    bound : BlockBound
        Of the rows, in the columns, that the objective was measured on.
    objective : float
        Of the clustering.
    confidence : float in (0, 1) or None
        As in `certify`; of no effect where every block was solved.
    began : float
        When `time.perf_counter` was asked.
    stats : Statistics, optional
        Statistics of the pass, for what was read.
    """
    require_confidence(confidence)
    certain, note = bound.lower_bound(), ""
    lower = certain if confidence is None else bound.lower_bound(confidence)
    # A bound with a probability may fail, and has if it exceeds the objective; the certain bound remains.
    uses_sample = confidence is not None and certain < lower <= objective
    all_solved = bound.fraction == 1.0 or 0 < bound.record.n_blocks == bound.record.n_solved
    if confidence is not None and not uses_sample and not all_solved:
        note = _why_certain(bound, confidence, lower > objective)
    certificate = made_certificate(
        lower if uses_sample else certain, objective, bound.n_clusters, "blocks", block_details(bound), began
    )
    if stats is not None:
        certificate = certificate.with_statistics(stats)
    probability = float(confidence) if uses_sample and confidence is not None else 1.0
    return replace(certificate, confidence=probability, note=note)


def _why_certain(bound: BlockBound, confidence: float, refuted: bool) -> str:
    """Return in words why a bound of the probability that was asked for is not the one given."""
    n_solved, n_blocks = bound.record.n_solved, bound.record.n_blocks
    count = f"{n_solved} of {n_blocks} blocks {'was' if n_solved == 1 else 'were'} solved"
    reason = f"only {count}, which is too few"
    if n_blocks == 0:
        reason = f"there is no block of {bound.block_rows} rows of which more than {bound.n_clusters} are different"
    elif n_solved > 0 and not math.isfinite(bound.record.log_gained):
        reason = f"{count}, and at least one of them gained nothing over the spectral bound"
    elif refuted:
        reason = f"{count}, and the bound that follows from them is above an objective that was reached"
    return (
        f"This bound holds for certain. Nothing more can be said with probability {confidence}: {reason}. A larger "
        "fraction, or smaller blocks, may prove more."
    )


def require_confidence(confidence: float | None) -> None:
    """Raise `BadParameter` unless this is None or a probability."""
    if confidence is not None:
        require_number("confidence", confidence, above=0, below=1)


def block_details(summary: BlockBound) -> dict[str, float]:
    """Return what a block certificate is made of, as plain numbers."""
    record = summary.record
    return {
        "n_rows": record.n_rows,
        "n_features": record.n_features,
        "n_blocks": record.n_blocks,
        "n_solved": record.n_solved,
        "block_rows": summary.block_rows,
        "spectral_blocks": record.spectral,
        # The bound of each block already has its own rounding subtracted.
        "rounding": summary.rounding,
        "underflow": underflow(record.n_rows, record.n_features, record.weight),
    }


SHARE = 0.2  # Share of the estimated seconds of a run that its certificate may take
LEAST_SECONDS = 2.0  # Estimated seconds that it may take in any case: all blocks of some two thousand rows
FEWEST_BLOCKS = 8  # A sample of fewer solved blocks proves less than the spectrum, so none is solved
CONFIDENCE = 0.99  # Probability of a bound from a sample of blocks, where the job names none
LARGEST_SAMPLE = 0.9  # From this share on all blocks are solved: a sample would save little and prove less
SMALL_POPULATION = 2 * FEWEST_BLOCKS  # Of so many blocks all are solved: a sample would often have less than the fewest
MOST_NBYTES = 1 << 30  # Memory of a block above which none is solved

# Assumed speed of a core, per second: flops of a matrix product, of an eigenvalue problem and of a round of the
# dual method or of k-means, and bytes read. Constants, so that no clock decides the bits of a result.
PRODUCTS, REDUCTIONS, ROUNDS, BYTES = 20e9, 7e9, 5e9, 2e9

# Eigenvalue problems of a block, and those for its triangle inequalities, iterations of a start of k-means, rounds of
# the dual method.
_EVALUATIONS, _TRIANGLES, _ITERATIONS, _ROUNDS = 6, 150, 20, 100


@dataclass(frozen=True)
class Affordable:
    """What a certificate solves, and what it is estimated to cost.

    `description`: Of the summary; None where blocks are too dear.
    `confidence`: Of its bound; None where all blocks are solved.
    `n_blocks`: Blocks of all rows, as far as known before the pass; 0 where the job says what is solved.
    `n_solved`: Expected number that is solved.
    `cost_share`: Estimated seconds of the certificate over those of the run without it.
    `seconds`: Of one core, estimated.
    """

    description: BlockBound | None = None
    confidence: float | None = None
    n_blocks: int = 0
    n_solved: int = 0
    cost_share: float = 0.0
    seconds: float = 0.0

    @property
    def is_automatic(self) -> bool:
        """Whether the number of blocks was estimated, not given."""
        return self.n_blocks > 0

    def sentence(self) -> str:
        """Return what is solved in words.

        Examples
        --------
        >>> Affordable(n_blocks=3).sentence()  # doctest: +NORMALIZE_WHITESPACE
        'certificate: from the spectrum alone; blocks of rows cost too much for this run (certificate = "blocks", or
        `sketchselect certify` of its folder, solves them)'
        """
        if self.description is None:
            return (
                "certificate: from the spectrum alone; blocks of rows cost too much for this run "
                '(certificate = "blocks", or `sketchselect certify` of its folder, solves them)'
            )
        solved = "all" if self.confidence is None else f"about {self.n_solved} of"
        cost = f"about {format_seconds(self.seconds)} of one core"
        if self.cost_share < 1.0:
            cost += f", {100 * self.cost_share:.0f} % of what this run is estimated to cost without them"
        return (
            f"certificate: {solved} {self.n_blocks} blocks of rows are solved, for {cost}; "
            "estimated from a count of operations, it may take a quarter of that or three times as long"
        )


def affordable_blocks(
    source: Source, n_selected: int, n_clusters: int, n_starts: int, options: BlockOptions, *, every: bool = False
) -> Affordable:
    """Return which blocks of rows the certificate of a run solves, by estimated operations.

    As many as fit into `SHARE` of the run or `LEAST_SECONDS`; all where those are nearly all, or the rows have few. The
    others contribute their spectral bound, unless that takes more than half of the time: a sample of twice as many then
    proves more.
    With triangle inequalities where all blocks with them fit, too, or all are solved whatever the cost.

    `source`: The prepared rows, all columns.
    `n_selected`, `n_clusters`, `n_starts`: Columns, clusters and starts of k-means.
    `options`: Rows of a block, random state, and confidence of a sample.
    `every`: Whether all blocks are solved, whatever the cost.
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
    dear = solved + _TRIANGLES * 4 / 3 * size**3 / REDUCTIONS
    triangles = every or n_blocks * dear <= budget
    description = BlockBound(k, options.block_rows, seed=options.random_state, triangles=triangles)
    too_large = description.solving_nbytes(size, p) > MOST_NBYTES
    spectral = n_blocks * spectrum <= budget / 2
    spent = n_blocks * spectrum if spectral else 0.0
    each = solved - spectrum if spectral else solved
    count = math.floor((budget - spent) / each)
    enough = LARGEST_SAMPLE * n_blocks
    if n_blocks <= SMALL_POPULATION:
        enough = min(enough, FEWEST_BLOCKS)
    if every or (count >= enough and not too_large):
        seconds = reading + n_blocks * (dear if triangles else solved)
        return Affordable(description, None, n_blocks, n_blocks, seconds / run, seconds)
    if count < FEWEST_BLOCKS or too_large:
        return Affordable(n_blocks=n_blocks)
    seconds = reading + spent + count * each
    description = BlockBound(k, options.block_rows, count / n_blocks, options.random_state, spectral, triangles=False)
    confidence = CONFIDENCE if options.confidence is None else options.confidence
    return Affordable(description, confidence, n_blocks, count, seconds / run, seconds)
