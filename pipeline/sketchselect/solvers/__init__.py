"""Sparse linear regression from second moments: paths of penalised models, thresholding, annealing, ridge."""

from __future__ import annotations

from sketchselect.solvers.annealing import anneal, anneal_path
from sketchselect.solvers.homotopy import homotopy_path
from sketchselect.solvers.linear import coefficient_tests, least_squares, ridge, threshold
from sketchselect.solvers.path import Fit, Path
from sketchselect.solvers.penalized import adaptive_factors, solve_path
from sketchselect.solvers.penalties import MCP, PENALTIES, SCAD, ElasticNet, Lasso, Penalty
from sketchselect.solvers.problem import Problem, nearest_psd, standardize, standardize_rows
from sketchselect.solvers.proximal_newton import NetPenalty, newton_step

__all__ = [
    "MCP",
    "PENALTIES",
    "SCAD",
    "ElasticNet",
    "Fit",
    "Lasso",
    "NetPenalty",
    "Path",
    "Penalty",
    "Problem",
    "adaptive_factors",
    "anneal",
    "anneal_path",
    "coefficient_tests",
    "homotopy_path",
    "least_squares",
    "nearest_psd",
    "newton_step",
    "ridge",
    "solve_path",
    "standardize",
    "standardize_rows",
    "threshold",
]
