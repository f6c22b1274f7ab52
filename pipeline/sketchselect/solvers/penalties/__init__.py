"""Penalties for sparse regression, one a file."""

from __future__ import annotations

from sketchselect.solvers.penalties.base import Penalty
from sketchselect.solvers.penalties.elastic_net import ElasticNet
from sketchselect.solvers.penalties.lasso import Lasso
from sketchselect.solvers.penalties.mcp import MCP
from sketchselect.solvers.penalties.scad import SCAD

PENALTIES: dict[str, type[Penalty]] = {penalty.name: penalty for penalty in (Lasso, ElasticNet, MCP, SCAD)}
"""Every penalty by its name."""

__all__ = ["MCP", "PENALTIES", "SCAD", "ElasticNet", "Lasso", "Penalty"]
