"""The demo: a complete job on scikit-learn's digits, with its input and job file left in the output folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sketchselect.workflow.output.folder import open_folder

if TYPE_CHECKING:
    from sketchselect.workflow.job import RunResult

JOB = """\
# The whole job of `sketchselect demo`. Paths are relative to this file.
# Run it again:      sketchselect run {name}
# Change something:  sketchselect run {name} --set select.tolerance_proved=0.2 --set output.dir=other

[input]
url = "input/digits.zarr"        # 1797 handwritten digits, 8 x 8 pixels each
labels = "input/digit.npy"       # which digit it is: never used, only compared with at the end

[prepare]
rows = ["l2"]                    # every row scaled to length 1

[select]
method = "auto"                  # the one of all fast methods that clusters best
n_features = "auto"              # as few of the 64 pixels as it takes, so that
tolerance_proved = 0.10          # the clustering is proved to be within 10 % of the best one on all of them

[cluster]
n_clusters = 10
random_state = 0
certificate = "auto"             # what proves it
compare_all_columns = true       # also cluster on all 64 pixels, to compare

[execution]
cluster = "local"
n_workers = 2

[output]
dir = "."
image_shape = [8, 8]
"""


def proved_sentence(result: RunResult) -> str:
    """Return what the demo ends with: how few pixels do, and what is proved of the clustering."""
    columns, best = result.manifest["prepared_columns"], result.certificate
    return (
        f"{result.selection.support.size} of {columns} pixels do: the clustering on them is proved to be within "
        f"{math.ceil(1000 * (best.factor - 1)) / 10:.1f} % of the best one on all {columns}."
    )


def prepare_demo(out: str | os.PathLike[str], *, fresh: bool = False) -> Path:
    """Make the folder with ``input/digits.zarr``, ``input/digit.npy`` and ``job.toml``; return the job file's path.

    Raises `NotOurFolder` or `RunInProgress` as for every output folder.
    """
    from sklearn.datasets import load_digits

    from sketchselect.readers import convert

    with open_folder(out, fresh=fresh) as folder:
        job = folder.path / "job.toml"
        inputs = folder.path / "input"
        inputs.mkdir(exist_ok=True)
        pixels, digit = load_digits(return_X_y=True)
        if not (inputs / "digits.zarr").exists():
            scratch = folder.staging("digits.npy")
            np.save(scratch, pixels.astype(np.float32))
            convert(scratch, inputs / "digits.zarr", chunks=(300, 64))
        if not (inputs / "digit.npy").exists():
            np.save(inputs / "digit.npy", digit.astype(np.int64))
        if not job.exists():
            job.write_text(JOB.format(name=os.path.relpath(job)))
        return job
