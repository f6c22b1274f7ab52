"""Highly variable genes by the flavors of scanpy beside Seurat v3: binned dispersions and Pearson residuals."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadBlock, BadParameter
from sketchselect.execution import summarize
from sketchselect.execution.api import open_source
from sketchselect.execution.client import open_engine
from sketchselect.execution.engine import PassOptions, reduce_blocks
from sketchselect.execution.source import Block
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.csr import densify, row_pieces, take_rows
from sketchselect.linalg.validation import Array, Floats, is_csr
from sketchselect.prepare.steps import BadEntry, Step, as_floats, place_of, stored, with_stored
from sketchselect.readers import Matrix
from sketchselect.selectors.highly_variable import combined_order
from sketchselect.summaries import ColumnStats, Groups

SEURAT_BINS = 20
"""Bins of equal width of the mean; those of Cell Ranger are 20 by rank, and need no number."""
MAD_OF_NORMAL = 0.6744897501960817
"""Median absolute deviation of a standard normal variable."""
_PIECE_VALUES = 1 << 20  # Of a dense piece of cells whose residuals are computed at a time


@dataclass(frozen=True, eq=False)
class Exponential(Step):
    """``exp(x log(base)) - 1``, which undoes the logarithm of counts; for the passes of this module."""

    name: ClassVar[str] = "expm1"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"

    base: float | None = None

    def apply(self, block: Any) -> Any:
        """Return the counts."""
        values = as_floats(stored(block))
        powers = values if self.base is None else values * values.dtype.type(np.log(self.base))
        with np.errstate(over="ignore"):
            counts = np.expm1(powers)
        if (too_large := np.isinf(counts) & np.isfinite(powers)).any():
            first = int(too_large.argmax())
            problem = f"{values.flat[first]:.6g}, which is no logarithm of a count; name a layer of logarithms"
            raise BadEntry(*place_of(block, first), problem)
        return with_stored(block, counts)


@dataclass(frozen=True)
class Dispersions:
    """Mean and dispersion of each gene as a flavor defines them, the normalised dispersion, and which are chosen."""

    means: Floats
    dispersions: Floats
    normalized: Floats
    is_chosen: NDArray[np.bool_]


def binned_dispersions(means: Floats, variances: Floats, flavor: str, n_top: int, cells: str) -> Dispersions:
    """Return the genes whose dispersion, variance / mean, is large for genes of about their mean.

    "seurat" takes logarithms of both (of 1 + the mean), and standardises in 20 bins of equal width by mean and standard
    deviation; "cell_ranger" in bins by rank, by median and median absolute deviation. Genes as good as the last one are
    chosen too.

    `means`, `variances` of shape (n_genes,): Of counts, the variance with divisor N - 1.
    `cells`: What errors call the cells.
    Source: Satija et al. 2015; Zheng et al. 2017.
    """
    import pandas as pd

    means = np.where(means == 0, 1e-12, means)
    with np.errstate(divide="ignore", invalid="ignore"):
        dispersions = variances / means
        if flavor == "seurat":
            dispersions = np.log(np.where(dispersions == 0, np.nan, dispersions))
            means = np.log1p(means)
        edges: Any = SEURAT_BINS
        if flavor == "cell_ranger":
            edges = np.r_[-np.inf, np.percentile(means, np.arange(10, 105, 5)), np.inf]
            if not (np.diff(edges) > 0).all():
                raise BadParameter(
                    f'flavor="cell_ranger" compares genes in bins of their means, and in {cells} one mean is that of '
                    "so many genes that a bin has no width; leave out genes and batches of few cells, or take another "
                    "flavor"
                )
        groups = pd.Series(dispersions).groupby(pd.cut(means, edges, labels=False))
        if flavor == "seurat":
            centers, scales = groups.transform("mean"), groups.transform("std")
            # A gene alone in its bin has a normalised dispersion of 1.
            alone = scales.isna()
            scales, centers = scales.where(~alone, centers), centers.where(~alone, 0.0)
        else:
            centers = groups.transform("median")
            deviations = (pd.Series(dispersions) - centers).abs() / MAD_OF_NORMAL
            scales = deviations.groupby(pd.cut(means, edges, labels=False)).transform("median")
        normalized = ((dispersions - centers) / scales).to_numpy()
    known = np.sort(normalized[~np.isnan(normalized)])[::-1]
    least = known[min(n_top, known.size) - 1] if known.size else np.inf
    return Dispersions(means, dispersions, normalized, np.nan_to_num(normalized, nan=-np.inf) >= least)


def dispersion_columns(
    matrix: Matrix,
    codes: Array | None,
    batch_names: Array | None,
    flavor: str,
    n_top: int,
    base: float | None,
    names: Any,
    client: Any,
) -> dict[str, Any]:
    """Return scanpy's columns of ``var`` for "seurat" and "cell_ranger", from one pass over the cells.

    `codes` of shape (n_cells,): The number of each cell's batch in `batch_names`; with None there are no batches.
    `names`: Of the genes; with batches equal genes are in their order, as in scanpy.
    """
    prepare = [Exponential(base)] if flavor == "seurat" else []
    n_batches = 1 if batch_names is None else len(batch_names)
    batches = _stats(matrix, codes, n_batches, prepare, client)[0]
    parts = []
    for i, stats in enumerate(batches):
        cells = "all cells" if batch_names is None else f"batch {str(batch_names[i])!r:.80}"
        means = np.asarray(stats.mean, dtype=np.float64)
        variances = stats.centered_column_squared_norms / max(stats.n_rows - 1, 1)
        # Of several batches each leaves out the genes that none of its cells has.
        seen = np.ones(means.size, dtype=bool) if codes is None else (means != 0) | (variances != 0)
        part = binned_dispersions(means[seen], variances[seen], flavor, n_top, cells)
        columns = [np.zeros(means.size) for _ in range(4)]
        for column, values in zip(columns, vars(part).values(), strict=True):
            column[seen] = values
        parts.append(columns)
    if codes is None:
        means, dispersions, normalized, chosen = parts[0]
        counts = {}
    else:
        import pandas as pd

        stacked = np.array(parts)
        means, dispersions, normalized = (pd.DataFrame(stacked[:, i]).mean().to_numpy() for i in range(3))
        in_batches = stacked[:, 3].sum(axis=0).astype(np.int64)
        by_name = np.empty(means.size, dtype=np.int64)
        by_name[np.argsort(np.asarray(names, dtype=str), kind="stable")] = np.arange(means.size)
        order = np.lexsort((by_name, -np.nan_to_num(normalized, nan=-np.inf), -in_batches))
        chosen = np.zeros(means.size)
        chosen[order[:n_top]] = 1
        counts = {"highly_variable_nbatches": in_batches, "highly_variable_intersection": in_batches == n_batches}
    return {
        "highly_variable": chosen.astype(bool),
        "means": means,
        "dispersions": dispersions,
        "dispersions_norm": normalized.astype(np.float32),
        **counts,
    }


def _stats(
    matrix: Matrix, codes: Array | None, n_batches: int, prepare: Sequence[Step], client: Any
) -> tuple[list[Any], Any]:
    """Return the means and variances of each batch, and of all cells."""
    if codes is None or n_batches == 1:
        summary: Any = summarize(matrix, ColumnStats(), prepare=prepare, client=client)
        return [summary], summary
    summary = summarize(matrix, Groups(ColumnStats(), range(n_batches)), y=codes, prepare=prepare, client=client)
    return list(summary), summary.total


def residual_columns(
    matrix: Matrix, codes: Array | None, n_batches: int, n_top: int, theta: float, client: Any
) -> dict[str, Any]:
    """Return scanpy's columns of ``var`` for "pearson_residuals", from two passes over the cells.

    The residual of a count x with the expectation mu = gene total x cell total / total of the batch is (x - mu) /
    sqrt(mu + mu^2 / theta), clipped at sqrt(n), of which the variance over the cells of each batch ranks genes; n is
    the number of cells of the first batch, as in scanpy.
    Source: Lause, Berens and Kobak 2021.
    """
    numbers = np.zeros(matrix.shape[0], dtype=np.int64) if codes is None else codes
    source = open_source(matrix, numbers, None, ())
    stats, total = _stats(matrix, codes, n_batches, [], client)
    negative = np.flatnonzero(np.min([part.minimum for part in stats], axis=0) < 0)
    if negative.size:
        j = int(negative[0])
        name = "" if total.feature_names is None else f" ({total.feature_names[j]})"
        raise BadBlock(f"pearson_residuals needs raw counts, but gene {j}{name} has negative values")
    totals = np.array([part.mean * part.n_rows for part in stats])
    clip = float(np.sqrt(stats[0].n_rows))
    nbytes = 16 * totals.size
    with open_engine(client, source.matrix, source.target) as engine:
        reduction: Reduction[Floats] = Reduction(
            partial(_residual_sums, totals, clip, theta),
            operator.add,
            "Pearson residuals",
            state_nbytes=nbytes,
            working_nbytes=nbytes + 8 * 6 * _PIECE_VALUES,
        )
        sums, squares = reduce_blocks(source, reduction, PassOptions(engine)).value
    cells = np.array([part.n_rows for part in stats], dtype=np.float64)[:, None]
    variances = squares / cells - (sums / cells) ** 2
    order, median, in_batches = combined_order(variances, n_top, "numpy", by_batches=True)
    chosen = np.zeros(totals.shape[1], dtype=bool)
    chosen[order[:n_top]] = True
    counts = {"highly_variable_nbatches": in_batches, "highly_variable_intersection": in_batches == n_batches}
    return {
        "means": total.mean,
        "variances": total.centered_column_squared_norms / max(total.n_rows - 1, 1),
        "residual_variances": variances.mean(axis=0),
        "highly_variable_rank": median.astype(np.float32),
        **({} if codes is None else counts),
        "highly_variable": chosen,
    }


def _residual_sums(totals: Floats, clip: float, theta: float, block: Block) -> Floats:
    """Return sums and sums of squares of the clipped residuals of a block, shape (2, n_batches, n_genes)."""
    out = np.zeros((2, *totals.shape))
    batches = np.asarray(block.target).reshape(-1).astype(np.int64)
    rows = block.values
    for a, b in row_pieces(rows, _PIECE_VALUES):
        piece = densify(take_rows(rows, a, b), np.float64) if is_csr(rows) else np.asarray(rows[a:b], dtype=np.float64)
        for batch in np.unique(batches[a:b]):
            cells = piece[batches[a:b] == batch]
            genes = totals[batch]
            expected = cells.sum(axis=1)[:, None] * (genes / (genes.sum() or 1.0))
            spread = np.sqrt(expected + expected * expected / theta)
            # Genes and cells without a count have no residual.
            residuals = np.divide(cells - expected, spread, out=np.zeros_like(cells), where=spread > 0)
            np.clip(residuals, -clip, clip, out=residuals)
            out[0, batch] += residuals.sum(axis=0)
            out[1, batch] += np.square(residuals).sum(axis=0)
    return out
