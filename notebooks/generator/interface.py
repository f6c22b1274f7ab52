"""Pages of the public names, from their docstrings, and of the commands, from their help."""

from __future__ import annotations

import inspect
import types

import click
import typer.main

import sketchselect as sks
from sketchselect.cli import GROUPS, app

FOLDERS = {
    "sketchselect": "Names of everyday use",
    "sketchselect.selectors": "Selectors",
    "sketchselect.summaries": "Summaries",
    "sketchselect.cluster": "Clusters and certificates",
    "sketchselect.prepare": "Prepare steps",
    "sketchselect.readers": "Readers",
    "sketchselect.execution": "Execution",
    "sketchselect.solvers": "Solvers",
    "sketchselect.workflow": "Jobs",
    "sketchselect.plots": "Figures",
    "sketchselect.pp": "Preparation of AnnData objects",
    "sketchselect.tl": "Tools on AnnData objects",
    "sketchselect.errors": "Errors",
    "sketchselect.testing": "Tests for parts of your own",
}


def interface_pages() -> dict[str, str]:
    """Return a page for each public folder, and their index; a name that several folders have is described once."""
    described: set[str] = set()
    pages = {}
    for folder, title in FOLDERS.items():
        module = sks if folder == "sketchselect" else getattr(sks, folder.partition(".")[2])
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        entries = []
        for name in names:
            item = getattr(module, name)
            home = f"{getattr(item, '__module__', '')}.{getattr(item, '__qualname__', '')}"
            is_ours = home.startswith("sketchselect.") and not isinstance(item, types.ModuleType)
            if not is_ours or home in described or not (inspect.isclass(item) or callable(item)):
                continue
            described.add(home)
            entries.append(_entry(folder, name, item))
        pages[f"{folder}.rst"] = "\n".join([f"{title}\n{'=' * len(title)}\n", f"``{folder}``\n", *entries])
    listed = "\n".join(f"   {folder}" for folder in FOLDERS)
    pages["index.rst"] = f"Python\n======\n\n.. toctree::\n   :maxdepth: 1\n\n{listed}\n"
    return pages


def _entry(folder: str, name: str, item: object) -> str:
    heading = f"{name}\n{'-' * len(name)}\n"
    if inspect.isclass(item):
        members = "" if issubclass(item, BaseException) else "   :members:\n   :inherited-members: object\n"
        return f"{heading}\n.. autoclass:: {folder}.{name}\n   :show-inheritance:\n{members}"
    return f"{heading}\n.. autofunction:: {folder}.{name}\n"


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
