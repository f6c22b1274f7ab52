"""Images of the columns as pixels: the score of each pixel, and the selected pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.report import drawing

_LARGEST_SIDE = 256


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
    span = highest - lowest
    level = (np.where(np.isfinite(heat), heat, lowest) - lowest) / span if span > 0 else np.zeros(heat.shape)
    indexes = np.where(np.isfinite(heat), 1 + np.rint(254 * level), 0).astype(np.uint8)
    palette = np.vstack([np.zeros((1, 4), dtype=np.uint8), drawing.ramp(255)])
    two = np.array([[0, 0, 0, 0], [0x3F, 0x90, 0xDA, 255]], dtype=np.uint8)
    return ScoreImages(
        drawing.png(indexes, palette),
        drawing.png(mask.astype(np.uint8), two),
        lowest,
        highest,
        heat.shape[1],
        heat.shape[0],
        step,
    )


def _reduce(image: Floats, step: int) -> Floats:
    """Return the image with each `step` x `step` block replaced by its maximum."""
    if step == 1:
        return image
    height, width = image.shape
    full = np.full((-(-height // step) * step, -(-width // step) * step), -np.inf)
    full[:height, :width] = image
    blocks = full.reshape(full.shape[0] // step, step, full.shape[1] // step, step)
    return np.asarray(blocks.max(axis=(1, 3)))
