"""Figures of the package's structure: lines, modules a folder, import circles, files that a job enters before it reads.

Run as a script, ``python tests/structure.py``, it prints them; `test_layers` holds the package to their limits.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent / "pipeline" / "sketchselect"

MOST_MODULES = 15
"""Modules of one folder, ``__init__.py`` not counted."""

MOST_EXECUTION_LINES = 4000
"""Lines of ``execution/``: the schedulers are Dask's, and what Dask does is not done again."""

MOST_ENTERED = 48
"""Files that a job on a Zarr store, on threads, enters before the first block is read; to be lowered, not raised."""


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name below the package, and its text."""

    name: str
    text: str
    is_package: bool = False

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


def package_modules() -> Iterator[Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package and len(parts) > 1 else parts)
        yield Module(name, path.read_text(encoding="utf-8"), is_package)


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, wherever it stands: also inside functions and `if TYPE_CHECKING`."""
    package = ["sketchselect", *module.name.split(".")]
    if module.name == "__init__":
        package = ["sketchselect"]
    elif not module.is_package:
        package.pop()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif is_dynamic_import(node):
            yield node.lineno, str(ast.literal_eval(node.args[0]))


def is_dynamic_import(node: Any) -> bool:
    if not isinstance(node, ast.Call) or dotted(node.func).split(".")[-1] not in {"import_module", "__import__"}:
        return False
    return bool(node.args) and isinstance(node.args[0], ast.Constant)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` of a chain of attributes; calls and subscripts inside it count as nothing."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def modules_by_folder(names: Iterator[str] | list[str]) -> Counter[str]:
    return Counter(name.rpartition(".")[0] for name in names)


def lines_of(modules: list[Module], folder: str = "") -> int:
    """Return the lines of all modules, or of those in a folder at the top."""
    return sum(module.text.count("\n") for module in modules if folder in ("", module.name.split(".")[0]))


def import_graph(modules: list[Module]) -> dict[str, set[str]]:
    """Return for every module the modules of the package that it imports; a name of a package counts as the package."""
    known = {module.name for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        targets = set()
        for _, name in imported(module):
            parts = name.split(".")
            if parts[0] != "sketchselect":
                continue
            inner = parts[1:]
            while inner and ".".join(inner) not in known:
                inner.pop()
            targets.add(".".join(inner) or "__init__")
        graph[module.name] = targets - {module.name}
    return graph


def import_circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan's algorithm, iterative)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    circles = []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        circles.append(sorted(component))
    return sorted(circles)


class EnteredFiles:
    """The files of the package in which a function is called, imports and class bodies aside, up to the first read."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.over = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or self.over or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        if frame.f_code.co_name in ("read_rows", "read_block"):
            self.over = True
        elif frame.f_code.co_flags & inspect.CO_OPTIMIZED and not _is_importing(frame):
            self.files.add(str(Path(frame.f_code.co_filename).relative_to(PACKAGE)))


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            return not frame.f_code.co_filename.endswith("__main__.py")
        frame = frame.f_back
    return False


def files_entered_by_a_job(source: str = "zarr") -> list[str]:
    """Return the files that ``sketchselect run job.toml`` enters, on threads, before the first block is read.

    The source is a Zarr store ("zarr", what most jobs read) or a NumPy file ("npy").
    """
    import numpy as np
    import zarr

    from sketchselect.cli import main

    entered, rows = EnteredFiles(), np.random.default_rng(0).random((300, 20))
    with tempfile.TemporaryDirectory() as folder:
        if source == "zarr":
            zarr.create_array(f"{folder}/rows.zarr", data=rows, chunks=(100, 20))
        else:
            np.save(f"{folder}/rows.npy", rows)
        job = Path(folder) / "job.toml"
        job.write_text(
            f'[input]\nurl = "{folder}/rows.{source}"\n[select]\nmethod = "sketched-ridge"\nn_features = 5\n[cluster]\n'
            f'n_clusters = 3\n[execution]\ncluster = "threads"\nn_workers = 1\n[output]\ndir = "{folder}/out"\n'
        )
        arguments, sys.argv = sys.argv, ["sketchselect", "run", str(job)]
        threading.setprofile(entered)
        sys.setprofile(entered)
        try:
            main()
        except SystemExit:
            pass
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            sys.argv = arguments
    return sorted(entered.files)


def main() -> None:
    """Print the figures."""
    modules = list(package_modules())
    print(f"{lines_of(modules)} lines in {len(modules)} modules; execution/ has {lines_of(modules, 'execution')}")
    for folder, count in modules_by_folder([m.name for m in modules if not m.is_package]).most_common(5):
        print(f"{count:3} modules in {folder or 'the top folder'}")
    circles = import_circles(import_graph(modules))
    print(f"{len(circles)} import circles")
    for circle in circles:
        print("   ", " ".join(circle))
    for source in ("zarr", "npy"):
        files = files_entered_by_a_job(source)
        print(f"{len(files)} files entered by `sketchselect run` before the first block of a .{source} is read")
        if "-v" in sys.argv:
            print("\n".join(f"    {file}" for file in files))


if __name__ == "__main__":
    main()
