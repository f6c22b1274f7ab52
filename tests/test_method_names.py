"""Methods of selection are known by name in their class alone: other code asks an attribute of the class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from tests.structure import Module, package_modules

from sketchselect.selectors.registry import METHODS

LAYERS = {"selectors", "cluster", "report", "job", "workflow", "cli", "integrations"}
"""Layers that can know the methods; below them a word is just a word."""

EXAMPLES = {
    "workflow.commands.demo": "the job file of the demo",
    "cli.files": "the help of options",
    "integrations.scanpy": "scanpy's key of the results of its own function",
}
"""Modules that may have the name of a method in a text."""

HYPHENATED = re.compile(rf"(?<![\w-])({'|'.join(name for name in METHODS if '-' in name)})(?![\w-])")
"""Method names that are no words of English, so that they mean the method wherever they stand in a text."""


def texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the strings of a module, without docstrings and without the constants that give a class its name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "ClassVar[str]":
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node
        yield from texts(node)


def method_names(module: Module) -> list[str]:
    return [
        f"{module.name}, line {text.lineno}: names a method; use an attribute of its class: {text.value[:60]!r}"
        for text in texts(module.tree)
        if text.value in METHODS or HYPHENATED.search(text.value)
    ]


def test_methods_are_named_in_their_classes_alone() -> None:
    modules = [module for module in package_modules() if module.name.split(".")[0] in LAYERS]
    assert {module.name for module in modules} >= EXAMPLES.keys()
    modules = [module for module in modules if module.name not in EXAMPLES]
    assert [line for module in modules for line in method_names(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        'if method == "greedy": pass',
        'METHODS_WITHOUT_WEIGHTS = frozenset(("lasso",))',
        'raise ValueError(f"{x}; use sketched-ridge instead")',
    ],
)
def test_a_method_name_is_found(text: str) -> None:
    assert method_names(Module("workflow.a", text))


@pytest.mark.parametrize(
    "text", ['"""Greedy, as greedy."""', 'class A:\n    method: ClassVar[str] = "greedy"', 'x = "l2"']
)
def test_other_texts_are_not(text: str) -> None:
    assert method_names(Module("workflow.a", text)) == []
