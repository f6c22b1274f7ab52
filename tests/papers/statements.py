"""The statements of the four papers, the tests that name them, and the page that lists both.

`python tests/papers/statements.py` writes the page, notebooks/papers.md.
"""

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "notebooks" / "papers.md"
HEAD = """# The four papers, statement by statement

Where each statement is tested or reproduced, and why not where it is neither. Tests are below `tests`; benchmarks below
`tests/benchmarks`. This page is written by `python tests/papers/statements.py`.
"""


@dataclass(frozen=True)
class Statement:
    """A numbered statement of a paper; of `benchmark`, `reason` and `note` any may be empty."""

    paper: str
    id: str
    says: str
    benchmark: str = ""
    reason: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """The name in markers."""
        return f"{self.paper}, {self.id}"


def papers() -> dict[str, list[Statement]]:
    """Return title -> statements, in the order of each paper."""
    listed = tomllib.loads((Path(__file__).parent / "statements.toml").read_text(encoding="utf-8"))
    return {paper["title"]: [Statement(paper["name"], **s) for s in paper["statements"]] for paper in listed["paper"]}


def marked_tests() -> Iterator[tuple[str, str]]:
    """Yield (statement, test) for every argument of a marker `statement` at a test function."""
    for file in sorted(TESTS.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "mark.statement" not in text:
            continue  # Parsing all files took a tenth of what collecting all tests takes.
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.statement":
                        for argument in decorator.args:
                            yield ast.literal_eval(argument), f"{file.relative_to(TESTS).as_posix()}::{node.name}"


def page() -> str:
    """Return the text of the page."""
    tests: dict[str, list[str]] = {}
    for statement, test in marked_tests():
        tests.setdefault(statement, []).append(test)
    parts, counts = [], {"tested": 0, "measured by a benchmark alone": 0, "neither": 0}
    for title, statements in papers().items():
        parts.append(f"\n## {title}\n\n| statement | says | shown by |\n|---|---|---|\n")
        for s in statements:
            shown = [f"`{test}`" for test in sorted(tests.get(s.name, []))]
            kind = "tested" if shown else "measured by a benchmark alone" if s.benchmark else "neither"
            counts[kind] += 1
            shown += [f"`{s.benchmark}`"] if s.benchmark else []
            shown += [f"not shown: {s.reason}"] if s.reason else []
            says = f"{s.says} ({s.note})" if s.note else s.says
            parts.append(f"| {s.id} | {says} | {'<br>'.join(shown)} |\n")
    total = f"\n{sum(counts.values())} statements: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()) + ".\n"
    return HEAD + total + "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
