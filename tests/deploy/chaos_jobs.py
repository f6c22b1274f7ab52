"""The jobs that faults are done to: their source of 150 partitions, their kinds, and the result of each."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from tests.deploy.cluster_jobs import clustered_rows, make_reference, write_rows
from tests.job.commands import IN_PANELS

from sketchselect.job.text import write_toml

EXECUTION = {"n_workers": 2, "memory_limit": "1GiB", "checkpoint_seconds": 0, "stall_timeout": 40}

BLOCKS = {"method": "blocks", "block_rows": 100, "fraction": 0.25}

SELECTION = ("start", "summarize:", "write features:")

IN_PASSES = ("start", "summarize, other members:", "summarize, the sketch, in panels of columns:", "write features:")

CLUSTERING = (*SELECTION, "load rows for k-means:", "k-means:", "inertia:", "block certificate:")


@dataclass(frozen=True)
class Kind:
    """A kind of job: its method, with parameters, and the words with which the lines of its stages begin."""

    method: str
    parameters: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)
    stages: tuple[str, ...] = SELECTION
    has_target: bool = False
    is_remote: bool = False
    in_panels: bool = False

    def text(self) -> str:
        """Return the job file."""
        target = {"target": "target.npy"} if self.has_target else {}
        partition = 120_000 if self.in_panels else "128KiB"
        job = {
            "input": {"url": "rows.npz" if self.in_panels else "rows.zarr", **target},
            "prepare": {"rows": ["l2"]},
            "select": {"method": self.method, **self.parameters},
            "execution": {**EXECUTION, "partition_bytes": partition},
            "output": {"report": False},
        }
        return write_toml(job | ({"cluster": {"n_clusters": 6, **self.cluster}} if self.cluster else {}))


SKETCHED = {"n_features": 30, "n_components": 8, "sketch_size": 12}

MANY_STARTS = {"n_init": 3, "certificate": BLOCKS}

KINDS = {
    "clustering": Kind("sketched-ridge", SKETCHED, MANY_STARTS, CLUSTERING),
    "greedy": Kind("greedy", {"n_features": 20}),
    "greedy in panels": Kind("greedy", {"n_features": 4, "sketch_size": 12}, stages=IN_PASSES, in_panels=True),
    "clustering of a remote source": Kind(
        "sketched-ridge", SKETCHED, {"certificate": BLOCKS}, CLUSTERING, is_remote=True
    ),
    "deterministic": Kind("deterministic", {"n_features": 20, "partition": "kmeans++"}),
    "osinsky": Kind("osinsky", {"n_features": 12}),
    "pivoted-qr": Kind("pivoted-qr", {"n_features": 20}),
    "leverage": Kind("leverage", {"n_features": 20}),
    "hybrid": Kind("hybrid", {"n_features": 20}),
    "laplacian-score": Kind("laplacian-score", {"n_features": 20}),
    "randomized": Kind("randomized", {"n_features": 20}),
    "auto": Kind("auto", {}, {"certificate": False}, CLUSTERING[:-1]),
    "lasso": Kind("lasso", {"n_features": 10}, has_target=True),
    "univariate": Kind("univariate", {"n_features": 10}, has_target=True),
    "knockoffs": Kind("knockoffs", has_target=True),
    "auto-target": Kind("auto-target", has_target=True),
    "logistic": Kind("logistic", {"n_features": 10}, has_target=True),
}


def write_sources(folder: Path) -> None:
    """Write the rows, a target, and the sparse rows of the job in panels."""
    rows, rng = clustered_rows(), np.random.default_rng(6)
    write_rows(folder, rows, chunk_rows=80)
    np.save(folder / "target.npy", (rows[:, :5] @ [1, -2, 3, -1, 2] + rng.standard_normal(len(rows)) > 0).astype("i8"))
    sparse = scipy.sparse.random_array((15_000, 900), density=0.02, format="csr", rng=rng)
    scipy.sparse.save_npz(folder / "rows.npz", sparse)


def write_kind(sources: Path, name: str) -> Path:
    """Return the folder of a kind: the job, what it reads, and its result on threads, made once."""
    folder = sources.parent / name
    if not folder.exists():
        shutil.copytree(sources, folder)
        (folder / "job.toml").write_text(KINDS[name].text(), encoding="utf-8")
        if KINDS[name].in_panels:
            (folder / "program.py").write_text(IN_PANELS, encoding="utf-8")
        make_reference(folder)
    return folder
