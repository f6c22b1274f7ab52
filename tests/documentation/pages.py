"""Pages of the documentation: their text, and the blocks in them that readers can run.

Blocks of a page run in their order, in one folder and one namespace: ``python`` is executed, ``toml`` whose first line
is a comment with a file's name is written to that file, and of ``sh`` every line is a command of ours. A ``text``
block that follows directly is what they print, with ``...`` for what differs. ``console`` is shown alone.
"""

import contextlib
import doctest
import io
import re
import shlex
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.job.commands import works
from tests.passing import succeed

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = ROOT / "notebooks"
GENERATED = ("_build", "generated")
"""Folders below the site that its build writes."""

CHECK = doctest.OutputChecker()
LIKE_DOCTEST = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """A fenced block of a page, and what it prints if the page says so."""

    language: str
    text: str
    line: int
    printed: str | None


def pages() -> dict[str, Path]:
    """Return the README and all written pages of the site, by their paths in the repository."""
    paths = (path for path in SITE.rglob("*.md") if not set(GENERATED) & set(path.relative_to(SITE).parts))
    return {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *sorted(paths))}


def text_of(name: str) -> str:
    return pages()[name].read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in their order."""
    fences = list(re.finditer(r"^```([\w-]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    for fence, after in zip_longest(fences, fences[1:]):
        follows = after is not None and after[1] == "text" and not text[fence.end() : after.start()].strip()
        printed = after[2] if after is not None and follows else None
        yield Block(fence[1], fence[2], text[: fence.start()].count("\n") + 1, printed)


def run_page(name: str) -> dict[str, Any]:
    """Run the blocks of a page in the working folder, compare what they print, and return the names they leave."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text_of(name)):
        out = io.StringIO()
        if block.language == "python":
            # Empty lines before it make the line numbers of errors those of the page.
            code = compile("\n" * block.line + block.text, name, "exec")
            with contextlib.redirect_stdout(out):
                exec(code, names)
        elif block.language == "toml" and (file := re.match(r"# (\S+\.toml)\b", block.text)):
            Path(file[1]).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                out.write(run_line(line, f"{name}, line {block.line}"))
        if block.printed is not None:
            matches = CHECK.check_output(block.printed, out.getvalue(), LIKE_DOCTEST)
            assert matches, f"{name}, line {block.line} prints:\n{out.getvalue()}"
    return names


def run_line(line: str, place: str) -> str:
    """Run a line of a `sh` block, on threads where it names no cluster, and return what it prints."""
    words = shlex.split(line, comments=True)
    if not words:
        return ""
    assert words[0] == "sketchselect", f"{place}: not a command of ours, so a `console` block: {line}"
    if words[1] in {"run", "summarize", "cluster", "certify", "demo"} and "--scheduler" not in words:
        words += ["--scheduler", "threads"]
    result = works(*words[1:])
    return result.stdout


def python(*words: str, cwd: Path, seconds: float = 250) -> str:
    """Output of Python with these arguments, which has to succeed."""
    return succeed(sys.executable, *words, cwd=cwd, timeout=seconds).stdout
