"""The stage that looks at a range of numbers of clusters: ``clusters.csv``, and the figure in the report."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sketchselect._progress import ThrottledProgress
from sketchselect.errors import BadParameter, ConfigError
from sketchselect.report import ClusterCountRecord
from sketchselect.workflow.output import tables
from sketchselect.workflow.output.digests import tree_digest
from sketchselect.workflow.stages.session import VERSION, Session

if TYPE_CHECKING:
    from sketchselect.cluster.n_clusters import ClusterRange
    from sketchselect.execution import Source

FILE = "clusters.csv"


def numbers(limits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of clusters that ``[cluster] range`` stands for: of two, all from the first to the second.

    Examples
    --------
    >>> numbers((2, 5)), numbers((2, 4, 8))
    ((2, 3, 4, 5), (2, 4, 8))
    """
    return tuple(range(limits[0], limits[1] + 1)) if len(limits) == 2 else limits


def cluster_count(session: Session, features: Source | None) -> ClusterCountRecord | None:
    """Publish ``clusters.csv`` for the selected columns; return what the report shows, None where it is not asked for.

    The job's own `n_clusters` is never changed by it.
    """
    folder, settings = session.folder, session.config.cluster
    if settings is None or settings.range is None or features is None:
        folder.discard((FILE,))
        return None
    ks = numbers(settings.range)
    fingerprint: dict[str, Any] = {
        "version": VERSION,
        "files": [FILE],
        "features": tree_digest(folder.path / "features.zarr"),
        "numbers": list(ks),
        "random_state": settings.random_state,
    }
    with session.stage("range of clusters") as entry:
        if not session.reusable("range of clusters", fingerprint, entry):
            from sketchselect.cluster.n_clusters import range_of_source

            try:
                result = range_of_source(
                    features,
                    ks,
                    session.pass_options.but(progress=ThrottledProgress(session.progress)),
                    random_state=settings.random_state,
                )
            except BadParameter as error:
                raise ConfigError(f"cluster.range: {error}") from None
            record = record_of(result)
            entry["record"] = tables.plain_value(asdict(record))
            folder.write(FILE, clusters_csv(result))
            folder.finish("range of clusters", fingerprint, [FILE], entry)
        content = entry.pop("record")
        entry["recommended"] = content["recommended"]
    return ClusterCountRecord(**{**content, "used": settings.n_clusters})


def record_of(result: ClusterRange) -> ClusterCountRecord:
    """Return what the report shows."""
    return ClusterCountRecord(
        n_clusters=[one.n_clusters for one in result.counts],
        objectives=[one.best_objective for one in result.counts],
        lower_bounds=[one.lower_bound or 0.0 for one in result.counts],
        stability=[one.stability for one in result.counts],
        sentence=result.sentence(),
        n_seeds=result.n_seeds,
        n_sampled=result.n_sampled,
        recommended=result.recommended,
    )


def clusters_csv(result: ClusterRange) -> str:
    """Return the table: one line for each number of clusters.

    `objective` is exact, over all rows and the selected columns; `coreset_objective` the estimate that the starts were
    compared by; `factor` is objective / lower_bound, empty where nothing is proved; `elbow` is empty for the last.
    """
    measures = ("objective", "coreset_objective", "lower_bound", "factor", "stability", "elbow")
    lines: list[list[Any]] = [["n_clusters", *measures, "recommended"]]
    elbows, best = result.elbows, result.recommended
    for one in result.counts:
        values = [getattr(one, name) for name in measures[:-1]] + [elbows.get(one.n_clusters)]
        shown = ["" if v is None or v == float("inf") else repr(float(v)) for v in values]
        lines.append([one.n_clusters, *shown, int(one.n_clusters == best)])
    return tables.csv_text(lines)
