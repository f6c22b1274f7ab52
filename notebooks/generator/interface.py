"""Pages of the public names, from their docstrings, and of the commands, from their help."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import click
import typer.main

import sketchselect as sks
from sketchselect.cli import GROUPS, app

FOLDERS = (
    "sketchselect",
    "sketchselect.selectors",
    "sketchselect.summaries",
    "sketchselect.cluster",
    "sketchselect.prepare",
    "sketchselect.readers",
    "sketchselect.execution",
    "sketchselect.solvers",
    "sketchselect.workflow",
    "sketchselect.plots",
    "sketchselect.pp",
    "sketchselect.tl",
    "sketchselect.errors",
    "sketchselect.testing",
)
"""Modules with public names; a name that several have is described as that of the first."""

WANTS = {
    "Select columns, to cluster the rows": (
        "AutoSelector GreedySelector PivotedQRSelector selectors.OsinskySelector DeterministicSelector "
        "RandomizedSelector HybridSelector LeverageSelector SketchedRidgeSelector SketchedLassoSelector "
        "VarianceSelector selectors.MCFSSelector selectors.LaplacianScoreSelector selectors.Selection "
        "selection_curve selectors.SelectionCurve"
    ),
    "Select columns, to predict a target": (
        "selectors.TargetAutoSelector LassoPath ElasticNetPath MCPPath SCADPath selectors.LogisticPath ThresholdedOLS "
        "FeatureSelectionAnnealing selectors.UnivariateSelector selectors.MRMRSelector selectors.KnockoffSelector "
        "StabilitySelector"
    ),
    "Counts, and cells in AnnData objects": (
        "HighlyVariableGenes pp.highly_variable_genes tl.kmeans tl.rank_genes_groups"
    ),
    "Streams": (
        "OnlineLeverageSelector summaries.SlidingWindow timeline selectors.Timeline summaries.drift summaries.Drift"
    ),
    "Cluster the rows": (
        "KMeans cluster_range cluster.ClusterRange cluster.ClusterCount cluster.compare_preparations "
        "cluster.Preparations cluster.PreparationScore reassign cluster.Reassigned kmeans_objective "
        "cluster.FewerClusters selectors.SketchedPCA"
    ),
    "Prove how good a clustering is": (
        "certify certify_labels certify_selection Certificate cluster.SelectionBound cluster.least_squares_metric"
    ),
    "Summarise, merge and save": (
        "summarize save load Moments FrequentDirections ColumnStats Folds Bundle summaries.Groups summaries.RowSample "
        "summaries.LeverageSample summaries.LeverageScores summaries.TopValues summaries.TargetHistogram "
        "summaries.Contingency summaries.CentroidSums summaries.LikelihoodSums summaries.BlockBound "
        "summaries.ComomentPanel summaries.BatchDirections summaries.StepStatistics"
    ),
    "Open and prepare data": (
        "open_matrix readers.open_vector convert readers.grouped readers.transposed fit_prepare execution.FittedSteps "
        "local_cluster"
    ),
    "Run jobs": "run RunResult workflow.summarize workflow.select workflow.cluster workflow.report",
    "Draw": (
        "plots.SelectionScoresDisplay plots.SelectionCurveDisplay plots.ClusterRangeDisplay plots.ClustersDisplay "
        "plots.CertificateDisplay plots.ModelPathDisplay plots.CrossValidationDisplay plots.TimelineDisplay "
        "plots.VolcanoDisplay"
    ),
}
"""What one wants -> public names that do it, each with a page of its own. The others are described by module."""

REST = {
    "sketchselect": "Former names",
    "sketchselect.selectors": "A selector of your own",
    "sketchselect.summaries": "A summary of your own",
    "sketchselect.cluster": "Parts of a clustering",
    "sketchselect.prepare": "A prepare step of your own",
    "sketchselect.readers": "A reader of your own",
    "sketchselect.execution": "How passes are run",
    "sketchselect.solvers": "Solvers on moments",
    "sketchselect.plots": "A figure of your own",
    "sketchselect.errors": "Errors",
    "sketchselect.testing": "Tests for parts of your own",
}


def interface_pages() -> dict[str, str]:
    """Return a page for each name that users need, one for the rest of each module, and an index by what one wants."""
    items = dict(_public_items())
    index = ["Python\n======\n", "The public names, by what one wants. All examples run.\n"]
    pages = {}
    for want, names in WANTS.items():
        described = {f"sketchselect.{name}": items.pop(f"sketchselect.{name}") for name in names.split()}
        for path, item in described.items():
            pages[f"{path}.rst"] = _entry(path, item, "=")
        rows = [
            f"   * - :doc:`{path.removeprefix('sketchselect.')} <{path}>`\n     - {_first_line(item)}"
            for path, item in described.items()
        ]
        index += _part(want, rows, described)
    rows = []
    for folder, title in REST.items():
        rest = {path: item for path, item in items.items() if path.rpartition(".")[0] == folder}
        entries = [_entry(path, item, "-") for path, item in rest.items()]
        pages[f"{folder}.rst"] = "\n".join([f"{title}\n{'=' * len(title)}\n", f"``{folder}``\n", *entries])
        names = ", ".join(path.rpartition(".")[2] for path in rest)
        rows.append(f"   * - :doc:`{title} <{folder}>`\n     - {names}")
    index += _part("Errors, and parts of your own", rows, REST)
    pages["index.rst"] = "\n".join(index)
    return pages


def page_name(item: object) -> str:
    """Return the name of the page of a public class or function, or of the page that describes it."""
    (path,) = (path for path, each in _public_items().items() if each is item)
    is_wanted = any(path.removeprefix("sketchselect.") in names.split() for names in WANTS.values())
    return path if is_wanted else path.rpartition(".")[0]


@cache
def _public_items() -> Mapping[str, Any]:
    """Return all public classes and functions by their shortest path."""
    described: dict[str, Any] = {}
    seen: set[str] = set()
    for folder in FOLDERS:
        module = sks if folder == "sketchselect" else getattr(sks, folder.partition(".")[2])
        for name in getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]:
            item = getattr(module, name)
            home = f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', '')}"
            is_ours = home.startswith("sketchselect.") and not isinstance(item, types.ModuleType)
            if is_ours and home not in seen and callable(item):
                seen.add(home)
                described[f"{folder}.{name}"] = item
    return described


def _part(title: str, rows: list[str], pages: Iterable[str]) -> list[str]:
    listed = "\n".join(f"   {page}" for page in pages)
    return [
        f"{title}\n{'-' * len(title)}\n",
        ".. list-table::\n   :widths: 35 65\n",
        *rows,
        f"\n.. toctree::\n   :hidden:\n\n{listed}\n",
    ]


def _first_line(item: object) -> str:
    return (inspect.getdoc(item) or "").partition("\n\n")[0].replace("\n", " ")


def _entry(path: str, item: object, underline: str) -> str:
    name = path.rpartition(".")[2]
    heading = f"{name}\n{underline * len(name)}\n"
    if inspect.isclass(item):
        members = "" if issubclass(item, BaseException) else "   :members:\n   :inherited-members: object\n"
        return f"{heading}\n.. autoclass:: {path}\n   :show-inheritance:\n{members}"
    return f"{heading}\n.. autofunction:: {path}\n"


def command_page() -> str:
    """Return the help of every command, in the groups of `sketchselect --help`."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    lines = ["# Commands and their options", "", "What `sketchselect COMMAND --help` prints.", ""]
    for title, commands in GROUPS.items():
        lines += [f"## {title}", ""]
        for function in commands:
            command = group.commands[function.__name__]
            with command.make_context(f"sketchselect {function.__name__}", [], resilient_parsing=True) as context:
                lines += [f"### {function.__name__}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)
