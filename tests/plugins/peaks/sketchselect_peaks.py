import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.prepare import Step
from sketchselect.readers import Matrix
from sketchselect.readers.opening import FileFormat
from sketchselect.selectors import BaseSelector, Selection, rank
from sketchselect.summaries import Summary


@dataclass(frozen=True)
class PeaksRecord:
    n_rows: int
    peaks: np.ndarray

    @property
    def n_features(self) -> int:
        return self.peaks.shape[0]


class ColumnPeaks(Summary[PeaksRecord]):
    """The largest magnitude in every column: exact for any blocks and merge tree."""

    kind = "column-peaks"
    record_type = PeaksRecord

    def __init__(self) -> None:
        pass

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        return 8 * n_features + 64

    def _empty(self, n_features: int, n_targets: int) -> PeaksRecord:
        return PeaksRecord(0, np.zeros(n_features))

    def _summarise(self, block: Any, targets: Any, start: Any, weights: Any) -> PeaksRecord:
        return PeaksRecord(block.shape[0], np.abs(block.astype(np.float64)).max(axis=0))

    def _combine(self, left: PeaksRecord, right: PeaksRecord) -> PeaksRecord:
        return PeaksRecord(left.n_rows + right.n_rows, np.maximum(left.peaks, right.peaks))


class PeakSelector(BaseSelector):
    """Select the columns of largest magnitude."""

    method: ClassVar[str] = "peak"
    requires: ClassVar[tuple[str, ...]] = ("column-peaks",)

    def __init__(self, n_features_to_select: float | None = None, normalize: str | None = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.normalize = normalize

    def summary_description(self, n_features: int) -> ColumnPeaks:
        return ColumnPeaks()

    def _select(self, summary: ColumnPeaks, n_select: int) -> Selection:
        scores = summary.record.peaks
        return Selection(self.method, np.sort(rank(scores)[:n_select]), scores, feature_names=summary.feature_names)


@dataclass(frozen=True, eq=False)
class SignedRoot(Step):
    """``sign(x) sqrt(|x|)``, entry by entry."""

    name: ClassVar[str] = "signed-root"
    acts_on: ClassVar[str] = "rows"

    def apply(self, block: Any) -> Any:
        return block.sign() * np.sqrt(abs(block)) if hasattr(block, "sign") else np.sign(block) * np.sqrt(np.abs(block))


class VectorFile(Matrix):
    """An ``.fvecs`` file: every row is its length as int32, then its values as float32. Pickles as an address."""

    def __init__(self, path: str, nonfinite: Any) -> None:
        self.address, self.nonfinite, self.dtype = path, nonfinite, np.dtype(np.float32)
        width = int(np.fromfile(path, np.int32, 1)[0])
        self.shape = (os.path.getsize(path) // (4 * width + 4), width)

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        n_rows, width = self.shape
        if not 0 <= start <= stop <= n_rows:
            raise BadParameter(f"{self.address}: rows {start} to {stop} are outside 0 to {n_rows}")
        values = np.fromfile(self.address, np.float32, (stop - start) * (width + 1), offset=4 * start * (width + 1))
        return np.ascontiguousarray(values.reshape(-1, width + 1)[:, 1:])

    def identity(self, start: int, stop: int) -> str:
        version = os.stat(self.address)
        return f"fvecs {self.address} {version.st_size} {version.st_mtime_ns}:{start}:{stop}"


FVECS = FileFormat("fvecs files", (".fvecs",), lambda location, key, nonfinite: VectorFile(location.url, nonfinite))
