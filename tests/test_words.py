"""The words of the code: pronouns in names, docstrings of modules that are no noun phrases, unclear words in texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from tests.structure import Module, package_modules

PRONOUNS = {"found", "wanted", "kept", "rest", "given", "own", "held", "told", "said"}
"""Words that stand for a thing instead of naming it."""

TERMS = re.compile(r"not_?found|held_out|n_kept", re.IGNORECASE)
"""Terms of the field with such a word in them, and the public name of a sample's size."""

UNCLEAR = re.compile(
    r"\b(hardly|anew|so many|told|wanted|bands|each band|band of columns|held(?![- ]out))\b", re.IGNORECASE
)
"""Words of docstrings and messages that have a plainer or a more exact one."""

CLAUSE = re.compile(r"(What|How|Where|Which|Is|Does|When|Why|Whether)\b")
"""Beginnings of a docstring that is a clause, and not the name of what the module is."""


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of everything that a module names: variables, parameters, functions, classes, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.value.lineno, node.arg


def pronouns(module: Module) -> list[str]:
    return [
        f"{module.name}, line {line}: name the thing instead of {name!r}"
        for line, name in names(module.tree)
        if PRONOUNS & {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", TERMS.sub("", name))}
    ]


def clauses(module: Module) -> list[str]:
    text = ast.get_docstring(module.tree) or ""
    return [f"{module.name}: {text.splitlines()[0]}"] if CLAUSE.match(text) else []


def unclear(module: Module) -> list[str]:
    """Return the unclear words of all strings: docstrings, messages, and what comes between their values."""
    return [
        f"{module.name}, line {node.lineno}: say it without {word[0]!r}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in UNCLEAR.finditer(" ".join(node.value.split()))
    ]


@pytest.mark.parametrize("rule", [pronouns, clauses, unclear])
def test_package_keeps_the_rule(rule: object) -> None:
    assert callable(rule)
    assert [line for module in package_modules() for line in rule(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "found = 1",
        "def f(wanted): pass",
        "class Held: pass",
        "self.kept = 2",
        "for rest in x: pass",
        "f(own=1)",
        "def told(): pass",
        "all_found = 1",
        "def f(use_given): pass",
        "class HeldBlock: pass",
    ],
)
def test_a_pronoun_is_found(text: str) -> None:
    assert pronouns(Module("linalg.a", text))


@pytest.mark.parametrize("text", ['"""What a reader does."""', '"""How rows are cut."""'])
def test_a_clause_is_found(text: str) -> None:
    assert clauses(Module("linalg.a", text))
    assert clauses(Module("linalg.a", '"""Whole numbers."""')) == []


@pytest.mark.parametrize(
    "text", ['"""Rows that hardly count."""', 'f"{x}: starting anew"', '"""Fit.\n\n    For so\n    many rows."""']
)
def test_an_unclear_word_is_found(text: str) -> None:
    assert unclear(Module("linalg.a", text))
    assert unclear(Module("linalg.a", '"""Error on held-out rows, with its band."""')) == []


def test_a_constant_of_the_execution_has_one_value() -> None:
    values: dict[str, set[str]] = {}
    for module in package_modules():
        for node in module.tree.body if module.name.startswith("execution.") else []:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
                values.setdefault(node.targets[0].id, set()).add(ast.unparse(node.value))
    assert {name: several for name, several in values.items() if len(several) > 1} == {}
