"""A page for each selection method: when to take it, its guarantee, a picture, and its parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from generator.interface import page_name
from generator.pictures import draw
from sketchselect.cli.authoring import PURPOSES, method_facts
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.registry import METHODS


def method_pages(site: Path, folder: Path) -> dict[str, str]:
    """Return the pages of all methods and their index, and draw the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = method_facts()
    # Other tables of the page have more columns, and are no advice.
    choices = [cells for cells in _rows(site / "how-to" / "choose_a_method.md") if len(cells) == 3]
    guarantees = _rows(site / "reference" / "guarantees.md")
    pages = {}
    for name, cls in sorted(METHODS.items()):
        alt = draw(name, folder / f"{name}.svg")
        pages[f"methods/{name}.md"] = _page(name, cls, facts[name], choices, guarantees, alt)
    tables = []
    for purpose in PURPOSES:
        of_purpose = {name: each for name, each in facts.items() if each["purpose"] == purpose}
        rows = "\n".join(
            f"| [`{name}`]({name}.md) | {each['does']} | {each['needs'] or ''} |" for name, each in of_purpose.items()
        )
        listed = "\n".join(of_purpose)
        tables.append(
            f"## {purpose[0].upper()}{purpose[1:]}\n\n| method | | needs |\n|---|---|---|\n{rows}\n\n"
            f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
        )
    pages["methods/index.md"] = (
        "# Methods\n\nAll methods of `[select]`, by what they select columns for. Which of them to take: "
        "[choose a method](../../how-to/choose_a_method.md).\n\n" + "\n".join(tables)
    )
    return pages


def _page(
    name: str,
    cls: type[BaseSelector],
    facts: dict[str, Any],
    choices: list[list[str]],
    guarantees: list[list[str]],
    alt: str,
) -> str:
    when = [f"- {cells[0]}: {cells[2]}" for cells in choices if f"`{name}`" in cells[1]]
    (promise,) = (cells for cells in guarantees if f"`{name}`" in cells[0])
    needs = f" It needs {facts['needs']}." if facts["needs"] else ""
    reads = f"Reads {promise[1]}. " if len(promise) > 2 else "Reads rows, once. "
    return f"""# {name}

{facts["does"]}.{needs}

In a job `method = "{name}"`, in Python [`{cls.__name__}`](../api/{page_name(cls)}.rst).

## When

{chr(10).join(when) or "Beside others, to compare with."}

## Guarantee

{promise[-1][:1].upper()}{promise[-1][1:]}.

The symbols, and what all of the statements rest on, are on the page of [guarantees](../../reference/guarantees.md).

![{alt}]({name}.svg)

*{alt}*

## Cost, parameters and source

{reads}The parameters are those of `[select]`, where `n_features_to_select` is `n_features`.

```{{eval-rst}}
.. autoclass:: {cls.__module__}.{cls.__name__}
   :no-index:
```
"""


def _rows(page: Path) -> list[list[str]]:
    """Return the cells of all rows of the tables of a page."""
    lines = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
