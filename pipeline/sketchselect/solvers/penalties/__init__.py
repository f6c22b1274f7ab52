"""Penalties for sparse regression, one per file."""

from __future__ import annotations

from sketchselect.solvers.penalties.base import Penalty
from sketchselect.solvers.penalties.elastic_net import ElasticNet
from sketchselect.solvers.penalties.lasso import Lasso
from sketchselect.solvers.penalties.mcp import MCP
from sketchselect.solvers.penalties.scad import SCAD

PENALTIES: dict[str, type[Penalty]] = {penalty.name: penalty for penalty in (Lasso, ElasticNet, MCP, SCAD)}
"""Registry of the penalties, by name."""

__all__ = ["MCP", "PENALTIES", "SCAD", "ElasticNet", "Lasso", "Penalty"]
