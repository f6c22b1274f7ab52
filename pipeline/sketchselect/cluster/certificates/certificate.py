"""Certificates: how far a clustering can be from the best one, as a record with a sentence."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Any

import numpy as np

from sketchselect._text import html_table
from sketchselect.errors import BadParameter
from sketchselect.execution import Statistics
from sketchselect.plots import CertificateDisplay

# Relative error that an objective may carry (sums in float32, say) before it is called impossible.
_OBJECTIVE_ROUNDING = 1e-6


_NOTHING = 1e-9  # Excess of a factor over 1 that is put down to rounding in words

_VANISHING = "differences below 1e-162"

# Share of the possible gain, and of that beyond chance, from which a certificate says something of the clusters.
LARGE_SHARE = 0.5


@dataclass(frozen=True)
class Certificate:
    """A proved statement: the inertia (k-means objective) is at most `factor` times the best possible one.

    Parameters
    ----------
    lower_bound : float
        No clustering of the rows into `n_clusters` clusters has a smaller objective; 0 says nothing.
    objective : float
        The objective of the clustering at hand, or an upper bound of it (`method` says which).
    factor : float
        objective / lower_bound, at least 1; infinite where the lower bound is 0 and the objective is not, or where both
        are but rows of a cluster differ.
    method : str
        "spectral", "blocks"; "spectral+drop" and "spectral+selection" where the objective is bounded and not measured.
    confidence : float
        Probability with which the statement holds; 1 for what is rigorous.
    cost : float
        Seconds it took.
    n_clusters : int
        Number of clusters.
    details : mapping of str to number
        What the bound was made of.
    rows_read, bytes_read : int
        What was read for it, bytes as stored; 0 where a summary was enough.
    columns : {"all", "selected"}
        Which columns it speaks of: with "selected", of clusterings judged by the selected columns alone.
    note : str
        A remark that ends the sentence, such as why this is not the bound that was asked for.
    scatter : float, optional
        Objective of one cluster of all rows.

    Examples
    --------
    >>> import sketchselect as sks
    >>> from sklearn.datasets import make_blobs
    >>> X, _ = make_blobs(200, 6, centers=3, random_state=0)
    >>> model = sks.KMeans(3, random_state=0).fit(X)
    >>> certificate = sks.certify(X, model.inertia_, 3)
    >>> certificate.lower_bound <= certificate.objective
    True
    >>> round(certificate.factor, 2), certificate.confidence
    (1.0, 1.0)
    """

    lower_bound: float
    objective: float
    factor: float
    method: str
    confidence: float
    cost: float
    n_clusters: int
    details: Mapping[str, float] = field(default_factory=dict)
    rows_read: int = 0
    bytes_read: int = 0
    columns: str = "all"
    note: str = ""
    scatter: float | None = None

    @property
    def share(self) -> float | None:
        """Share of the possible gain that is proved: (scatter - objective) / (scatter - lower bound), from 0 to 1.

        The gain is what the best clustering has over one cluster. A factor near 1 alone says little: in rows without
        clusters, one cluster has it too. None where `scatter` is not known, where nothing was proved, and
        where nothing can be gained.
        """
        if self.scatter is None or not math.isfinite(self.factor):
            return None
        possible = self.scatter - self.lower_bound
        if not possible > _NOTHING * self.scatter:
            return None
        return min(max((self.scatter - self.objective) / possible, 0.0), 1.0)

    @property
    def chance_share(self) -> float | None:
        """Share that labels drawn at random have: (T - E) / (T - L), T the `scatter`, L the `lower_bound`.

        E = T (n - k) / (n - 1) is the mean objective of k clusters over all orders of labels for n rows of equal
        weight; with few rows, k / n may be much, and with many columns no labels can do much better. None where `share`
        is, or the number of rows is not known.
        """
        n_rows = self.details.get("n_rows")
        if self.share is None or self.scatter is None or n_rows is None or n_rows < 2:
            return None
        return min(self.scatter * (self.n_clusters - 1) / (n_rows - 1) / (self.scatter - self.lower_bound), 1.0)

    @property
    def says_much(self) -> bool:
        """Whether at least half of the possible gain is proved, and at least half of what is beyond chance."""
        chance = self.chance_share or 0.0
        return self.share is not None and self.share >= chance + LARGE_SHARE * (1 - chance)

    def plot(self, ax: Any = None) -> Any:
        """Draw bound, objective and the objective of one cluster on `ax` (new axes by default); return the axes."""
        return CertificateDisplay.from_certificates(self, ax=ax).ax_

    def __repr__(self) -> str:
        return f"<Certificate: {self.sentence()}>"

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._rows())
        return "\n".join([self.sentence(), *(f"{name:<{width}}  {value}" for name, value in self._rows())])

    def _repr_html_(self) -> str:
        return html_table(self.sentence(), self._rows())

    def _rows(self) -> list[tuple[str, Any]]:
        """Return what it consists of: names and values."""
        rows: list[tuple[str, Any]] = [
            ("inertia", self._objective()),
            ("lower bound", _rounded(self.lower_bound, ROUND_FLOOR)),
            ("at most times the best", _rounded(self.factor, ROUND_CEILING)),
            ("method", self.method),
            ("holds", "always" if self.confidence == 1 else f"with probability {self.confidence}"),
        ]
        if self.share is not None:
            rows.insert(3, ("proved share of the possible gain", shown_share(self.share)))
        return rows

    def sentence(self, closer: Certificate | None = None) -> str:
        """Return the certificate in plain words.

        `closer`: Of the same clustering, of a smaller factor, with a probability; one sentence says both.

        Examples
        --------
        >>> Certificate(50.0, 60.0, 1.2, "spectral", 1.0, 0.0, 3).sentence()[:68]
        'The clustering is within 20 % of the best possible one with 3 cluste'
        """
        return " ".join(part for part in (self._statement(closer), self._share_sentence(closer), self.note) if part)

    def _share_sentence(self, closer: Certificate | None) -> str:
        if self.share is None or self.scatter is None or self.factor <= 1 + _NOTHING:
            return ""
        gain = f"of what {self.n_clusters} clusters can gain over one cluster (inertia {self.scatter:.6g})"
        # Rounded down: it is a lower bound.
        share, likely = f"{shown_share(self.share)} {gain}", self
        if closer is not None and closer.share is not None and closer.share > self.share:
            share += f" for certain, and {shown_share(closer.share)} with probability {closer.confidence}"
            likely = closer
        if likely.says_much:
            return f"It has at least {share}."
        if (likely.share or 0.0) >= LARGE_SHARE:
            by_chance = f"labels drawn at random have {shown_share(likely.chance_share or 0.0)}"
            return f"It has at least {share}, but {by_chance}: this says little about the clusters."
        verb = "is" if likely is self else "are"
        return f"But only {share} {verb} proved: this says little about the clusters."

    def _statement(self, closer: Certificate | None) -> str:
        k = f"{self.n_clusters} cluster{'s' if self.n_clusters > 1 else ''}"
        if self.columns == "selected":
            k += " in the selected columns"
        verb = "is at most" if self.is_bounded else "is"
        if not np.isfinite(self.factor):
            return f"Nothing can be said about the best possible clustering with {k}: {self._why_nothing(verb)}."
        sure = "" if self.confidence == 1 else f" (with probability {self.confidence})"
        if self.objective == 0:
            precision = f" in double precision, where {_VANISHING} count as none"
            if self.details.get("rows_compared"):
                precision = ""
            return f"The clustering is the best possible one with {k}: its inertia is 0{precision}."
        if self.factor <= 1 + _NOTHING:
            best = "the best possible one" if self.factor == 1 else "up to rounding the best possible one"
            return f"The clustering is {best} with {k}: its inertia {verb} {self._objective()}{sure}."
        subject = "Judged by its selected columns alone, the clustering" if self.is_bounded else "The clustering"
        likely = ""
        if closer is not None:
            with_it = f"with probability {closer.confidence}"
            likely = f" for certain, and within {closer._away()} {with_it}"
            sure = f" ({_rounded(closer.lower_bound, ROUND_FLOOR)} {with_it})"
        return (
            f"{subject} is within {self._away()} of the best possible one with {k}{likely}: its inertia {verb} "
            f"{self._objective()}, and no clustering can have one below "
            f"{_rounded(self.lower_bound, ROUND_FLOOR)}{sure}."
        )

    def _away(self) -> str:
        """Return the factor in words, rounded up: a certificate may not say more than was proved."""
        if self.factor < 1.5:
            return f"{math.ceil(1000 * (self.factor - 1) - _NOTHING) / 10:g} %"
        return f"a factor of {math.ceil(1000 * self.factor - _NOTHING) / 1000:g}"

    def _why_nothing(self, verb: str) -> str:
        has_vanished = 0 < self.objective <= self.details.get("underflow", 0.0) / _OBJECTIVE_ROUNDING
        if self.objective == 0 or has_vanished:
            return (
                f"the rows of its clusters differ by so little that squares vanish in double precision ({_VANISHING} "
                "do); multiply the rows by a power of two, such as 2**500, and certify those"
            )
        hope = "; a larger sketch may give one" if self.details.get("shrinkage", 0.0) > 0 else ""
        if self.details.get("n_solved", 0) > 0:
            hope = "; larger blocks may give one"
        return f"the lower bound is 0 (the inertia {verb} {self._objective()}){hope}"

    def _objective(self) -> str:
        return _rounded(self.objective, ROUND_CEILING if self.is_bounded else ROUND_HALF_EVEN)

    @property
    def is_bounded(self) -> bool:
        """Whether `objective` is an upper bound, not a measurement."""
        return self.method.endswith(("drop", "selection"))

    def with_statistics(self, stats: Statistics, began: float | None = None) -> Certificate:
        """Return the certificate with the rows and bytes that a pass read, and the time since `began`."""
        cost = self.cost if began is None else time.perf_counter() - began
        return replace(self, rows_read=stats.rows_read, bytes_read=stats.bytes_read, cost=cost)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: numbers, text and a dict; an infinite factor as None."""
        plain = asdict(self) | {"details": dict(self.details), "sentence": self.sentence()}
        plain |= {"share": self.share, "chance_share": self.chance_share}
        plain["factor"] = self.factor if np.isfinite(self.factor) else None
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Certificate:
        """Return the certificate that `to_dict` gave."""
        factor = math.inf if plain["factor"] is None else plain["factor"]
        computed_keys = ("share", "chance_share", "sentence")
        return cls(**{name: value for name, value in plain.items() if name not in computed_keys} | {"factor": factor})


def shown_share(share: float) -> str:
    """Return a share as per cent, rounded down to where it stays true.

    Examples
    --------
    >>> shown_share(0.7129), shown_share(0.00005)
    ('71.2 %', 'less than 0.1 %')
    """
    tenths = math.floor(1000 * share + _NOTHING)
    return f"{tenths / 10:g} %" if tenths or share == 0 else "less than 0.1 %"


def _rounded(value: float, rounding: str) -> str:
    """Return a number to six digits, rounded to where a sentence stays true."""
    if not math.isfinite(value):
        return f"{value:g}"
    return f"{float(Context(prec=6, rounding=rounding).create_decimal_from_float(value)):.6g}"


def made_certificate(
    lower: float, objective: float, n_clusters: int, method: str, details: dict[str, float], began: float
) -> Certificate:
    """Return the certificate of a lower bound and an objective, or raise `BadParameter` where they contradict."""
    if objective < lower * (1 - _OBJECTIVE_ROUNDING) - details["rounding"]:
        raise BadParameter(
            f"an inertia (k-means objective) of {objective:.6g} is impossible: no clustering of these "
            f"{details['n_rows']} rows x {details['n_features']} columns into {n_clusters} clusters is below "
            f"{lower:.6g}; it was measured on other rows, columns or prepare steps than the summary"
        )
    lower = min(lower, objective)
    if objective == 0:
        factor = 1.0
    else:
        # The loss to squares below the smallest number; no effect on an objective of ordinary size.
        factor = (objective + details["underflow"]) / lower if lower > 0 else float("inf")
    spent = time.perf_counter() - began
    scatter = details.get("scatter")
    return Certificate(lower, objective, factor, method, 1.0, spent, n_clusters, details, scatter=scatter)


def with_row_check(certificate: Certificate, same_rows: bool) -> Certificate:
    """Return the certificate with its factor corrected for an objective of 0: 1 if each cluster's rows are the same."""
    factor = 1.0 if same_rows else float("inf")
    details = {**certificate.details, "rows_compared": 1.0}
    return replace(certificate, factor=factor, details=details) if certificate.objective == 0 else certificate


def strongest(certificates: Sequence[Certificate]) -> Certificate | None:
    """Return the certificate with the smallest factor, one that always holds before one with a confidence."""
    usable = [c for c in certificates if not math.isnan(c.factor)]
    return min(usable, key=lambda c: (not math.isfinite(c.factor), c.confidence < 1, c.factor), default=None)


def closer_one(certificates: Sequence[Certificate]) -> Certificate | None:
    """Return the certificate of the smallest factor among those with a confidence, if the strongest has a larger one.

    Examples
    --------
    >>> sure, likely = (Certificate(50, 60, 1.2, "spectral", 1, 0, 3), Certificate(55, 60, 1.1, "blocks", 0.99, 0, 3))
    >>> closer_one([sure, likely]) is likely, closer_one([likely]), closer_one([sure])
    (True, None, None)
    """
    best = strongest(certificates)
    likely = [c for c in certificates if best is not None and c.confidence < 1 and c.factor < best.factor]
    return min(likely, key=lambda c: c.factor, default=None)
