"""Parts that other installed packages add: methods, summaries, prepare steps and file formats, by entry point.

An entry point is looked for only where a name is unknown to this package, by that exact name; so it never replaces a
part of this package, and nothing that a file says is ever imported unless somebody installed it under that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from sketchselect._text import printable
from sketchselect.errors import BadPlugin

T = TypeVar("T")


class Plugins(Generic[T]):
    """The parts of one kind that other packages add, each loaded when it is first asked for.

    `group`: Name of the entry points, without ``sketchselect.``.
    `expected`: What an entry point must load, in words that its name follows.
    `suits`: ``suits(part, name)`` returns whether a loaded object is that, and has this name.
    """

    def __init__(self, group: str, expected: str, suits: Callable[[Any, str], bool]) -> None:
        self._group, self._expected, self._suits = f"sketchselect.{group}", expected, suits
        self._loaded: dict[str, T] = {}

    def names(self) -> list[str]:
        """Return the names of all installed parts of this kind; none is loaded."""
        return sorted({point.name for point in entry_points(group=self._group)})

    def find(self, name: object) -> T | None:
        """Return the part of this exact name; None where no installed package has one.

        Raises
        ------
        BadPlugin
            If it cannot be loaded, is something else, or several packages have the name; one line that names the
            package and the entry point.
        """
        if not isinstance(name, str):
            return None
        if name not in self._loaded:
            points = list(entry_points(group=self._group, name=name))
            if not points:
                return None
            if len(points) > 1:
                packages = " and ".join(sorted(map(_package, points)))
                raise BadPlugin(f"{self._group} {name!r} is in several packages: {packages}; uninstall all but one")
            self._loaded[name] = self._load(points[0])
        return self._loaded[name]

    def _load(self, point: EntryPoint) -> T:
        where = f"{_package(point)}: entry point {point.name!r} of {self._group} ({point.value})"
        try:
            part: T = point.load()
        except Exception as error:
            problem = printable(f"{type(error).__name__}: {error}")
            raise BadPlugin(f"{where} cannot be loaded: {problem}; update or uninstall that package") from error
        if not self._suits(part, point.name):
            raise BadPlugin(f"{where} is not {self._expected} {point.name!r}; update or uninstall that package")
        return part


class Registry(MutableMapping[str, T]):
    """The parts of this package by name, in which those of other packages are found too.

    Iterating gives the parts of this package alone, so that no default depends on what else is installed.

    `group`: Name of the entry points, without ``sketchselect.``.
    `base`, `attribute`: Parts are subclasses of `base`, and this attribute of theirs is their name.
    `parts`: The parts of this package; or name -> ``module:class``, loaded when it is first asked for.
    """

    def __init__(self, group: str, base: type, attribute: str, parts: Iterable[T] | Mapping[str, str] = ()) -> None:
        def suits(part: Any, name: str) -> bool:
            return isinstance(part, type) and issubclass(part, base) and getattr(part, attribute, None) == name

        if isinstance(parts, Mapping):
            self._parts: dict[str, T | EntryPoint] = {name: EntryPoint(name, at, group) for name, at in parts.items()}
        else:
            self._parts = {getattr(part, attribute): part for part in parts}
        self._plugins: Plugins[T] = Plugins(group, f"a subclass of {base.__name__} whose {attribute} is", suits)

    def known(self) -> list[str]:
        """Return the names of all parts, those of other packages included, for messages."""
        return sorted({*self, *self._plugins.names()})

    def __getitem__(self, name: str) -> T:
        part = self._parts.get(name) or self._plugins.find(name)
        if part is None:
            raise KeyError(name)
        if isinstance(part, EntryPoint):
            part = self._parts[name] = cast(T, part.load())
        return part

    def __setitem__(self, name: str, part: T) -> None:
        self._parts[name] = part

    def __delitem__(self, name: str) -> None:
        del self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts or self._plugins.find(name) is not None


def _package(point: EntryPoint) -> str:
    return "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
