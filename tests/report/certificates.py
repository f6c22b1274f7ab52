"""Certificates to draw."""

from sketchselect.cluster import Certificate


def certificate(
    method: str,
    factor: float,
    lower_bound: float,
    objective: float,
    confidence: float = 1.0,
    note: str = "",
    scatter: float | None = None,
) -> Certificate:
    return Certificate(lower_bound, objective, factor, method, confidence, 0.5, 3, note=note, scatter=scatter)
