"""Methods, prepare steps and kinds of summaries are told apart by attributes of their classes, never by their names."""

import ast
import re
from collections.abc import Callable, Iterator

import pytest
from tests.structure import Module, package_modules

from sketchselect.prepare import STEPS
from sketchselect.selectors.registry import METHODS
from sketchselect.summaries import KINDS

LAYERS = {"selectors", "cluster", "report", "job", "workflow", "cli", "integrations"}
"""Layers that can know the methods; below them a word is just a word."""

EXAMPLES = {
    "cli.installation": "the job file of the demo",
    "cli.files": "the help of options",
    "integrations.scanpy": "scanpy's key of the results of its own function",
    "selectors.registry": "where the class of each method is",
}
"""Modules that may have the name of a method in a text."""

EVERYDAY = {"auto", "stability"}
"""Methods whose name is also a value of many parameters, or a column of another table."""

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
        if text.value in METHODS.keys() - EVERYDAY or HYPHENATED.search(text.value)
    ]


def test_methods_are_registered_under_their_names() -> None:
    assert {name: cls.method for name, cls in METHODS.items()} == {name: name for name in METHODS}


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


NAMED = re.compile(rf"step \"({'|'.join(STEPS)})\"|(?<![\w-])({'|'.join(n for n in STEPS if '-' in n)})(?![\w-])")
"""A prepare step in the text of a message."""

ABOVE_STEPS = {"execution", *LAYERS}
"""Layers that can know the prepare steps and the kinds."""

STEP_EXAMPLES = {
    "job.schema": "what is expected of a key",
    "cli.shell": "the help of options",
    "cli.authoring": "the job file of `init`",
    "cli.installation": "the job file of the demo",
}
"""Modules that may have the name of a step in a text."""

NORMS = {"selectors.sketched"}
"""Modules with a parameter of their own that takes a norm, "l2" among others."""


def operands(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what is compared, subtracted or intersected, and the parts of a set, tuple or list among it."""
    sides: list[ast.expr] = []
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.BitAnd)):
        sides = [node.left, node.right]
    for side in sides:
        yield from side.elts if isinstance(side, (ast.Set, ast.Tuple, ast.List)) else [side]


def decisions_by_name(module: Module) -> list[str]:
    names = STEPS.keys() | KINDS.keys()
    return [
        f"{module.name}, line {node.lineno}: decides by a name; use an attribute of its class: {node.value!r}"
        for parent in ast.walk(module.tree)
        for node in operands(parent)
        if isinstance(node, ast.Constant) and node.value in names and module.name not in NORMS
    ]


def named_steps(module: Module) -> list[str]:
    # A set: the registry itself looks for a plug-in whenever it does not know a name.
    names = set(STEPS)
    return [
        f"{module.name}, line {text.lineno}: names a prepare step; use its class: {text.value[:60]!r}"
        for text in texts(module.tree)
        if module.name not in STEP_EXAMPLES and text.value not in names and NAMED.search(text.value)
    ]


@pytest.mark.parametrize("rule", [decisions_by_name, named_steps])
def test_steps_and_kinds_are_told_apart_by_attributes(rule: Callable[[Module], list[str]]) -> None:
    modules = [module for module in package_modules() if module.name.split(".")[0] in ABOVE_STEPS]
    assert {module.name for module in modules} >= STEP_EXAMPLES.keys()
    assert [line for module in modules for line in rule(module)] == []


@pytest.mark.parametrize(
    "text", ['if need.kind == "row-sample": pass', 'steps - {"impute", "l2"}', 'n = next(s for s in x if "l2" in s)']
)
def test_a_decision_by_name_is_noticed(text: str) -> None:
    assert decisions_by_name(Module("workflow.a", text))


@pytest.mark.parametrize("text", ["why = 'the step \"impute\" fills them'", 'f"{x}: use library-size first"'])
def test_a_step_in_a_message_is_noticed(text: str) -> None:
    assert named_steps(Module("workflow.a", text))
