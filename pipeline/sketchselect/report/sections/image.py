"""Images of the columns as pixels: the score of each pixel, the selected pixels, and the centres of the clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.report import drawing

_LARGEST_SIDE = 256
_LARGEST_CENTRE = 96
MAX_CENTRES = 40


@dataclass(frozen=True)
class ScoreImages:
    """Two ``data:`` images of equal shape, the range of the scores, and the factor by which the images are reduced."""

    scores: str
    mask: str
    lowest: float
    highest: float
    width: int
    height: int
    reduction: int


@dataclass(frozen=True)
class CentreImages:
    """The centres as ``data:`` images by cluster, on one scale from `lowest` to `highest`."""

    images: list[tuple[int, str]]
    lowest: float
    highest: float
    left_off: int


def draw_images(scores: Floats, support: Array, shape: Sequence[int]) -> ScoreImages:
    """Return heat map and mask; a pixel with several channels, or a block of pixels, shows its highest score."""
    height, width, channels = (*shape, 1)[:3] if len(shape) == 2 else tuple(shape)
    finite = np.where(np.isfinite(scores), scores, -np.inf)
    chosen = np.zeros(len(scores))
    chosen[support] = 1.0
    step = -(-max(height, width) // _LARGEST_SIDE)
    heat = _reduce(finite.reshape(height, width, channels).max(axis=2), step)
    mask = _reduce(chosen.reshape(height, width, channels).max(axis=2), step)

    known = heat[np.isfinite(heat)]
    lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    two = np.array([[0, 0, 0, 0], [0x3F, 0x90, 0xDA, 255]], dtype=np.uint8)
    return ScoreImages(
        _heat_map(heat, lowest, highest),
        drawing.png(mask.astype(np.uint8), two),
        lowest,
        highest,
        heat.shape[1],
        heat.shape[0],
        step,
    )


def draw_centres(centres: Floats, weights: Floats, shape: Sequence[int]) -> CentreImages:
    """Return the images of the largest clusters' centres; channels are averaged, and blocks of large images."""
    height, width = int(shape[0]), int(shape[1])
    largest = np.argsort(-weights, kind="stable")[:MAX_CENTRES]
    shown = np.sort(largest[weights[largest] > 0])
    step = -(-max(height, width) // _LARGEST_CENTRE)
    rows, columns = (np.arange(0, side, step) for side in (height, width))
    pixels = centres[shown].reshape(len(shown), height, width, -1).mean(axis=3)
    sums = np.add.reduceat(np.add.reduceat(pixels, rows, axis=1), columns, axis=2)
    means = sums / np.outer(np.diff(rows, append=height), np.diff(columns, append=width))
    known = means[np.isfinite(means)]
    lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    images = [(int(c), _heat_map(image, lowest, highest)) for c, image in zip(shown, means, strict=True)]
    return CentreImages(images, lowest, highest, int((weights > 0).sum()) - len(shown))


def _heat_map(values: Floats, lowest: float, highest: float) -> str:
    """Return values as an image of the colour map; what is not finite is transparent."""
    span = highest - lowest
    level = (np.where(np.isfinite(values), values, lowest) - lowest) / span if span > 0 else np.zeros(values.shape)
    indexes = np.where(np.isfinite(values), 1 + np.rint(254 * level), 0).astype(np.uint8)
    return drawing.png(indexes, np.vstack([np.zeros((1, 4), dtype=np.uint8), drawing.ramp(255)]))


def _reduce(image: Floats, step: int) -> Floats:
    """Return the image with each `step` x `step` block replaced by its maximum."""
    if step == 1:
        return image
    height, width = image.shape
    full = np.full((-(-height // step) * step, -(-width // step) * step), -np.inf)
    full[:height, :width] = image
    blocks = full.reshape(full.shape[0] // step, step, full.shape[1] // step, step)
    return np.asarray(blocks.max(axis=(1, 3)))
