"""Jobs and Python fits whose results are compared bit by bit, and the small sources that they read.

Only public names are used, so that modules and private files may move without an edit here. All sources have twelve
partitions or more, and the wide ones more columns than their sketches keep exactly, so that shrinks really happen.
"""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import scipy.sparse
import zarr

import sketchselect as sks
from sketchselect.summaries import BlockBound, DecayedDirections, Groups, LeverageSample, RowSample

ROWS, WIDE, NARROW = 480, 64, 24
WIDE_PARTITION, NARROW_PARTITION = 40 * WIDE * 8, 40 * NARROW * 8
SMALL_SKETCH = {"sketch_size": 4, "n_components": 3}


@cache
def arrays() -> dict[str, Any]:
    """Return the arrays that the sources hold, by name."""
    rng = np.random.default_rng(2024)
    classes = rng.integers(4, size=ROWS)
    centres = rng.standard_normal((4, WIDE)) * np.linspace(4, 0, WIDE)
    wide = centres[classes] + rng.standard_normal((ROWS, WIDE)) * np.linspace(1, 0.2, WIDE)
    narrow = wide[:, :NARROW].copy()
    missing = narrow.copy()
    missing[rng.random(missing.shape) < 0.03] = np.nan
    holes = narrow.copy()
    holes[rng.choice(ROWS, 25, replace=False), 3] = np.nan
    counts = rng.poisson(rng.gamma(0.5, 2.0, (4, WIDE))[classes]).astype(np.float32)
    return {
        "wide": wide.astype(np.float32),
        "narrow": narrow,
        "missing": missing,
        "holes": holes,
        "counts": counts,
        "classes": classes.astype(np.int64),
        "two-classes": (classes % 2).astype(np.int64),
        "target": narrow[:, [1, 4, 9]] @ [1.0, -2.0, 0.5] + rng.standard_normal(ROWS),
        "groups": np.repeat(np.arange(48), 10),
        "weight": rng.integers(0, 8, ROWS) / 4,
    }


def write_sources(folder: Path) -> None:
    """Write the arrays as stores and files of every sort that the cases read."""
    known = arrays()
    for name, values in known.items():
        np.save(folder / f"{name}.npy", values)
    for name, chunks in (("wide", (50, WIDE)), ("narrow", (30, 10))):
        store = zarr.create_array(
            str(folder / f"{name}.zarr"), shape=known[name].shape, chunks=chunks, dtype=known[name].dtype
        )
        store[:] = known[name]
    counts, names = scipy.sparse.csr_matrix(known["counts"]), [f"gene {j}" for j in range(WIDE)]
    obs = pd.DataFrame({"batch": np.array(["a", "b"])[known["two-classes"]]}, index=[f"cell {i}" for i in range(ROWS)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of AnnData, about pandas
        cells = anndata.AnnData(counts, obs=obs, var=pd.DataFrame(index=names))
        cells.write_zarr(folder / "cells.zarr")
        cells.write_h5ad(folder / "cells.h5ad")
    scipy.sparse.save_npz(folder / "counts.npz", counts)
    table = pd.DataFrame(known["narrow"], columns=[f"f{j}" for j in range(NARROW)])
    table.assign(y=known["target"]).to_parquet(folder / "table.parquet", row_group_size=70)
    table.to_csv(folder / "table.csv", index=False)
    sks.convert(folder / "table.csv", folder / "converted.zarr", chunks=(45, NARROW))


def job(source: str, method: str, cluster: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a job; in `more` a section of the job is a mapping, anything else a key of ``[select]``."""
    sections = {name: value for name, value in more.items() if name in ("input", "prepare", "timeline")}
    keys = {name: value for name, value in more.items() if name not in sections}
    narrow = source.startswith(("narrow", "table", "converted", "missing", "holes"))
    return {
        **sections,
        "input": {"url": source, **sections.get("input", {})},
        "select": {"method": method, "n_features": 6, **keys},
        **({"cluster": {"n_clusters": 4, "certificate": False, **cluster}} if cluster is not None else {}),
        "execution": {"partition_bytes": NARROW_PARTITION if narrow else WIDE_PARTITION},
    }


# Certificates are never "auto": that solves as many blocks as the clock allows.
JOBS: dict[str, dict[str, Any]] = {
    "sketched-ridge, zarr, labels": job(
        "wide.zarr",
        "sketched-ridge",
        {"compare_all_columns": True, "certificate": {"block_rows": 120}},
        input={"labels": "classes.npy"},
        **SMALL_SKETCH,
    ),
    "greedy, npy, two steps, range": job(
        "wide.npy",
        "greedy",
        {"certificate": "spectral", "reassign": True, "range": [3, 5]},
        prepare={"steps": ["l2", "standardise"]},
        normalize=False,
        **SMALL_SKETCH,
    ),
    "deterministic, parquet, weighted": job(
        "table.parquet",
        "deterministic",
        {"weighted": True, "certificate": "spectral"},
        input={"key": "-y"},
        partition="kmeans++",
    ),
    "randomized, anndata sparse": job(
        "cells.zarr",
        "randomized",
        {"n_clusters": 3, "init": "k-means||"},
        prepare={"steps": ["library-size", "log1p"]},
        sketch_size=4,
    ),
    "hybrid, converted csv": job(
        "converted.zarr", "hybrid", {"init": "k-means++", "n_init": 3}, prepare={"columns": ["scale"]}
    ),
    "leverage sampled, h5ad, weighted both": job(
        "cells.h5ad", "leverage", {"weighted": "both"}, prepare={"steps": ["tf-idf", "l2"]}, choice="sampled", ridge=0.5
    ),
    "online-leverage, columns": job("narrow.zarr", "online-leverage", {"init": "random"}),
    "leverage by columns": job("narrow.zarr", "leverage", read="columns"),
    "hvg with batches": job("cells.zarr", "hvg", {}, input={"target": "obs/batch"}, batches=True, n_features=10),
    "lasso, folds of groups": job(
        "table.parquet", "lasso", input={"target": "y", "cv_groups": "groups.npy"}, n_features="auto", cv=4
    ),
    "elastic-net, classes, dropped rows": job(
        "holes.npy",
        "elastic-net",
        input={"target": "two-classes.npy", "nonfinite": "drop_rows"},
        task="classification",
        n_features="auto",
        criterion="bic",
    ),
    "mcp, products": job("narrow.npy", "mcp", input={"target": "target.npy"}, degree=2, criterion="ebic"),
    "thresholded-ols, pairwise": job(
        "missing.npy",
        "thresholded-ols",
        input={"target": "target.npy", "nonfinite": "missing"},
        missing="pairwise",
        ridge=0.1,
    ),
    "annealing, fading": job("narrow.npy", "annealing", input={"target": "target.npy"}, half_life=100.0),
    "auto, number of columns open": job(
        "narrow.npy", "auto", {"certificate": "blocks", "n_init": 2}, n_features="auto", methods=["greedy", "variance"]
    ),
    "pivoted-qr, imputed": job(
        "missing.npy",
        "pivoted-qr",
        {"tol": 0.0},
        input={"nonfinite": "missing"},
        prepare={"steps": ["impute", "standardise"]},
    ),
    "variance, timeline": job("counts.npz", "variance", timeline={"points": 4, "window": 150}),
    "sketched-lasso, window, fourier": job(
        "narrow.npy",
        "sketched-lasso",
        {},
        prepare={"steps": ["standardise", "fourier(n_components=70, gamma=0.02, seed=1)"]},
        window=200,
        **SMALL_SKETCH,
    ),
    "laplacian-score, sparse": job("counts.npz", "laplacian-score", {}, n_rows=200),
}
"""Name -> job without its folders; the names of files in it stand for the sources of `write_sources`."""

FILE_KEYS = ("url", "target", "cv_groups", "labels")


def placed(content: dict[str, Any], sources: Path, out: Path, engine: Any) -> dict[str, Any]:
    """Return a job on the files of a folder; an engine that is no name is passed to `run` itself."""
    section = {
        key: str(sources / value) if key in FILE_KEYS and (sources / value).exists() else value
        for key, value in content["input"].items()
    }
    # A node that is saved because it took long may be read again by a later pass, whose `rows_read` are then fewer.
    unsaved = {"checkpoint_seconds": 1e9}
    execution = {**unsaved, **content["execution"], **({"cluster": engine} if isinstance(engine, str) else {})}
    output = {"dir": str(out), "report": False}
    return {**content, "input": section, "execution": execution, "output": output}


Compute = Callable[[Any], Any]
Case = Callable[..., dict[str, Any]]
"""Called with the folder of sources and an engine, or with the folder and a function that computes a Dask graph."""


def fitted(make: Callable[[], Any], source: str, y: str | None = None, weight: str | None = None) -> Case:
    """Return a case: a selector fitted to many partitions, and to one.

    `collect(compute=False)` takes no size of partitions, so the graph of a small file is that of one.
    """
    target, weights = (None if name is None else arrays()[name] for name in (y, weight))

    def run(sources: Path, engine: Any = None, compute: Compute | None = None) -> dict[str, Any]:
        place = sources / source
        if compute is not None:
            graph = make().collect(place, target, sample_weight=weights, compute=False)
            return results("one partition: ", make().fit_summary(compute(graph)))
        size = NARROW_PARTITION if "narrow" in source else WIDE_PARTITION
        many = make().fit(place, target, sample_weight=weights, client=engine, partition_bytes=size)
        one = make().fit(place, target, sample_weight=weights, client=engine)
        return {**results("", many), **results("one partition: ", one)}

    def results(prefix: str, selector: Any) -> dict[str, Any]:
        found = {"selection": selector.selection_, "summary": selector.summary_}
        for name in ("coef_", "intercept_", "alpha_"):
            if hasattr(selector, name):
                found[name] = getattr(selector, name)
        return {prefix + name: value for name, value in found.items()}

    return run


def summarized(descriptions: Callable[[], dict[str, Any]], source: str, y: str | None = None, **options: Any) -> Case:
    """Return a case: summaries of one pass."""

    def run(sources: Path, engine: Any = None, compute: Compute | None = None) -> dict[str, Any]:
        size = NARROW_PARTITION if "narrow" in source else WIDE_PARTITION
        how = {"compute": False} if compute is not None else {"client": engine}
        target = None if y is None else arrays()[y]
        bundle = sks.summarize(
            sources / source, sks.Bundle(descriptions()), y=target, partition_bytes=size, **options, **how
        )
        bundle = bundle if compute is None else compute(bundle)
        return {name: bundle[name] for name in descriptions()}

    return run


def clustered(sources: Path, engine: Any) -> dict[str, Any]:
    """Fit k-means in several ways, and use it on other rows."""
    found: dict[str, Any] = {}
    options = {"client": engine, "partition_bytes": WIDE_PARTITION}
    for source, init, n_init, weight in (
        ("wide.zarr", "k-means||", 3, arrays()["weight"]),
        ("counts.npz", "k-means++", 1, None),
        ("wide.npy", arrays()["wide"][:5].astype(float), 1, None),
    ):
        model = sks.KMeans(5, init=init, n_init=n_init, random_state=4).fit(sources / source, None, weight, **options)
        for name in ("labels_", "cluster_centers_", "inertia_", "n_iter_", "cluster_weights_"):
            found[f"{source}: {name}"] = getattr(model, name)
    found["distances"] = model.transform(sources / "wide.zarr", **options)
    found["predicted"] = model.predict(sources / "wide.zarr", **options)
    return found


def streamed(sources: Path, engine: Any) -> dict[str, Any]:
    """Pass rows and columns in batches; no engine is in it, and every one has to leave it alone."""
    rows, columns = arrays()["wide"], arrays()["narrow"].T[:, :40]
    greedy, kmeans = sks.GreedySelector(5, **SMALL_SKETCH), sks.KMeans(4)
    for start in range(0, ROWS, 70):
        greedy.partial_fit(rows[start : start + 70])
        kmeans.partial_fit(rows[start : start + 70])
    online = sks.OnlineLeverageSelector(8)
    for start in range(0, 40, 9):
        online.partial_fit(columns[:, start : start + 9])
    return {
        "greedy": greedy.selection_,
        "greedy's summary": greedy.summary_,
        "k-means": kmeans.cluster_centers_,
        "online": online.selection_,
    }


def proved(sources: Path, engine: Any) -> dict[str, Any]:
    """Judge given labels, and compare numbers of clusters and methods."""
    labels, place = arrays()["classes"], sources / "wide.zarr"
    blocks = sks.certify_labels(place, labels, 4, "blocks", block_rows=100, client=engine)
    sampled = sks.certify_labels(place, labels, 4, "blocks", block_rows=60, fraction=0.5, confidence=0.9, client=engine)
    moved = sks.reassign(place, labels, 4, client=engine)
    curve = sks.selection_curve(place, 4, methods=["greedy", "variance"], sizes=[3, 6], client=engine)
    counted = sks.cluster_range(place, [3, 4, 5], n_seeds=3, client=engine)
    bounds = [[c.lower_bound, c.objective] for c in (blocks, sampled)]
    return {
        "bounds": bounds,
        "objective": sks.kmeans_objective(place, labels, 4, client=engine),
        "reassigned": moved.labels,
        "curve": [[p.n_features, p.ratio, p.low, p.high] for p in curve.points],
        "range of clusters": counted.recommended,
    }


def prepared(sources: Path, engine: Any) -> dict[str, Any]:
    """Fit steps to some rows, and summarise others that they have prepared."""
    options = {"client": engine, "partition_bytes": WIDE_PARTITION}
    steps = ["tf-idf(sublinear=true)", "standardise", "clip(sd=3)"]
    fit = sks.fit_prepare(sources / "cells.zarr", steps, sample_weight=arrays()["weight"], **options)
    summary = sks.summarize(sources / "counts.npz", sks.Moments(), prepare=fit.steps, **options)
    return {"statistics": fit.statistics, "summary": summary}


FITS: dict[str, Case] = {
    "GreedySelector, weights": fitted(lambda: sks.GreedySelector(6, **SMALL_SKETCH), "wide.zarr", weight="weight"),
    "SketchedRidgeSelector, sparse": fitted(lambda: sks.SketchedRidgeSelector(6, **SMALL_SKETCH), "counts.npz"),
    "LassoPath, weights": fitted(lambda: sks.LassoPath(cv=3), "narrow.zarr", "target", "weight"),
    "SCADPath, classes": fitted(
        lambda: sks.SCADPath(criterion="aic", task="classification", n_alphas=20), "narrow.npy", "classes"
    ),
    "ThresholdedOLS, products": fitted(lambda: sks.ThresholdedOLS(5, degree=2), "narrow.npy", "target"),
    "HighlyVariableGenes": fitted(lambda: sks.HighlyVariableGenes(8), "cells.zarr"),
    "LeverageSelector": fitted(lambda: sks.LeverageSelector(6, sketch_size=4, n_components=3), "wide.npy"),
    "StabilitySelector": fitted(lambda: sks.StabilitySelector(n_pairs=4), "narrow.npy", "target"),
    "summaries of a sketch": summarized(
        lambda: {
            "directions": sks.FrequentDirections(size=4),
            "fading": DecayedDirections(size=4, half_life=90),
            "sampled": RowSample(30, seed=2),
            "leverage": LeverageSample(sampling_rate=2.0, ridge=100.0, seed=5),
            "stats": sks.ColumnStats(),
        },
        "wide.zarr",
        prepare=["l2"],
    ),
    "summaries of moments": summarized(
        lambda: {
            "moments": sks.Moments(),
            "fading": sks.DecayedMoments(half_life=90),
            "qr": sks.Moments(method="qr"),
            "folds": sks.Folds(sks.Moments(), n_folds=3, seed=1),
        },
        "narrow.zarr",
        "target",
        prepare=["standardise"],
    ),
    "summaries of groups": summarized(
        lambda: {"groups": Groups(sks.ColumnStats(), [0, 1, 2, 3]), "moments": sks.Moments(classes=[0, 1, 2, 3])},
        "counts.npz",
        "classes",
    ),
    "summaries of blocks": summarized(lambda: {"bound": BlockBound(n_clusters=3, block_rows=60)}, "narrow.npy"),
    "KMeans": clustered,
    "batches": streamed,
    "certificates and curves": proved,
    "prepare steps": prepared,
}
"""Name -> Python fit."""

NO_GRAPHS = ("StabilitySelector", "KMeans", "batches", "certificates and curves", "prepare steps")
GRAPHS = [name for name in FITS if name not in NO_GRAPHS]
"""Fits whose passes are also given out as a Dask graph."""
