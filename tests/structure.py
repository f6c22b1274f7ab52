"""Figures of the package's structure, for a reader to judge: files, lines, imports, functions, files entered by a run.

``python tests/structure.py`` prints them and never fails; `test_layers` takes its reading of the source from here.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import statistics
import sys
import tempfile
import threading
import tokenize
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent / "pipeline" / "sketchselect"
TESTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name below the package, and its text."""

    name: str
    text: str
    is_package: bool = False

    @functools.cached_property
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


class Entered:
    """The files and functions of the package that a call enters, imports and class bodies aside.

    With ``until_read`` they are counted up to the first read of rows.
    """

    def __init__(self, *, until_read: bool = False) -> None:
        self.files: set[str] = set()
        self.functions: set[tuple[str, int]] = set()
        self.until_read, self.over = until_read, False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or self.over or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        if self.until_read and frame.f_code.co_name in ("read_rows", "read_block"):
            self.over = True
        elif frame.f_code.co_flags & inspect.CO_OPTIMIZED and not _is_importing(frame):
            file = str(Path(frame.f_code.co_filename).relative_to(PACKAGE))
            self.files.add(file)
            self.functions.add((file, frame.f_code.co_firstlineno))

    def run(self, program: Callable[[], object]) -> Entered:
        """Run a program, and return the record of what it entered."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            program()
        except SystemExit:
            pass
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return self


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            return not frame.f_code.co_filename.endswith("__main__.py")
        frame = frame.f_back
    return False


def entered_by_a_job(source: str = "zarr", *, until_read: bool = False) -> Entered:
    """Return what ``sketchselect run job.toml`` enters on 4,000 x 40 rows, on threads.

    The source is a Zarr store ("zarr", what most jobs read) or a NumPy file ("npy").
    """
    import numpy as np
    import zarr

    from sketchselect.cli import main

    rows = np.random.default_rng(0).random((4000, 40))
    with tempfile.TemporaryDirectory() as folder:
        if source == "zarr":
            zarr.create_array(f"{folder}/rows.zarr", data=rows, chunks=(1000, 40))
        else:
            np.save(f"{folder}/rows.npy", rows)
        job = Path(folder) / "job.toml"
        job.write_text(
            f'[input]\nurl = "{folder}/rows.{source}"\n[select]\nmethod = "sketched-ridge"\nn_features = 5\n[cluster]\n'
            f'n_clusters = 3\n[execution]\ncluster = "threads"\nn_workers = 1\n[output]\ndir = "{folder}/out"\n'
        )
        arguments, sys.argv = sys.argv, ["sketchselect", "run", str(job)]
        try:
            return Entered(until_read=until_read).run(main)
        finally:
            sys.argv = arguments


def entered_by_a_fit() -> Entered:
    """Return what ``GreedySelector(20).fit(X)`` enters on an array of 400 x 40."""
    import numpy as np

    import sketchselect as sks

    return Entered().run(lambda: sks.GreedySelector(20).fit(np.random.default_rng(0).random((400, 40))))


@dataclass(frozen=True)
class Size:
    """Lines of code (without docstrings, comments and blank lines), those of imports, and what a file defines."""

    code: int
    imports: int
    functions: int
    short: int
    classes: int


def size(module: Module) -> Size:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree, strings, imports, functions, short, classes = module.tree, set[int](), set[int](), 0, 0, 0
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            strings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.update(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions += 1
            body = [s for s in node.body if s.lineno not in strings]
            short += len(body) == 1 and body[0].lineno == body[0].end_lineno
        classes += isinstance(node, ast.ClassDef)
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    code = lines - strings
    return Size(len(code), len(imports & code), functions, short, classes)


def main() -> None:
    """Print the figures."""
    modules = list(package_modules())
    sizes = {module.name: size(module) for module in modules}
    code, graph = sum(s.code for s in sizes.values()), import_graph(modules)
    lengths = [module.text.count("\n") for module in modules]
    users: dict[str, set[str]] = {}
    for name, targets in graph.items():
        for target in targets:
            users.setdefault(target, set()).add(name)
    closets = [m.name for m in modules if not m.is_package and len(users.get(m.name, ())) == 1]
    print(f"{len(modules)} files, median {statistics.median(lengths):.0f} lines, longest {max(lengths)}")
    print(f"{code} lines of code, {100 * sum(s.imports for s in sizes.values()) / code:.1f} % of them imports")
    print(
        f"{sum(s.functions for s in sizes.values())} functions, {sum(s.short for s in sizes.values())} of one line; "
        f"{sum(s.classes for s in sizes.values())} classes"
    )
    print(f"{len(closets)} modules are used by one other module: {' '.join(closets)}")
    rooms = dict.fromkeys(name.split(".")[0] for name in sizes)
    for room in sorted(rooms, key=lambda r: -sum(s.code for n, s in sizes.items() if n.split(".")[0] == r))[:12]:
        inside = [s for name, s in sizes.items() if name.split(".")[0] == room]
        print(f"    {room:14} {len(inside):3} files {sum(s.code for s in inside):6} lines of code")
    for circle in import_circles(graph):
        print("import circle:", " ".join(circle))
    tests = list(TESTS.rglob("*.py"))
    print(f"tests: {sum(path.read_text().count(chr(10)) for path in tests)} lines in {len(tests)} files")
    runs = {
        "GreedySelector(20).fit(X)": entered_by_a_fit(),
        "sketchselect run, before the first block is read": entered_by_a_job(until_read=True),
        "sketchselect run": entered_by_a_job(),
    }
    for name, entered in runs.items():
        print(f"{name} enters {len(entered.files)} files, {len(entered.functions)} functions")
        if "-v" in sys.argv:
            print("\n".join(f"    {file}" for file in sorted(entered.files)))


if __name__ == "__main__":
    main()
