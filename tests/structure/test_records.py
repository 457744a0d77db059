"""`dataclass` of jobspec/records.py makes what the standard library's makes, only sooner."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jobctl.jobspec import records
from tests.tools.syntax import statements

ROOT = Path(__file__).parents[2]
Make = Callable[[Any], Any]


def shape(make: Make) -> Any:
    """Return a class with fields of all kinds."""

    class Shape:
        """A shape."""

        kind: ClassVar[str] = "shape"
        name: str
        sides: int = 4
        tags: list[str] = field(default_factory=list, repr=False)
        note: str | None = field(default=None, compare=False)
        scale: float = field(default=1.0, kw_only=True)

        @property
        def doubled(self) -> int:
            return 2 * self.sides

        def __post_init__(self) -> None:
            if self.sides < 0:
                raise ValueError("no such shape")

    return make(Shape)


def hashed(make: Make) -> Any:
    class Point:
        x: int
        y: tuple[int, ...] = ()

    return make(Point)


def empty(make: Make) -> Any:
    class Empty:
        pass

    return make(Empty)


def both(of: Callable[[Make], Any], **options: bool) -> list[Any]:
    return [of(module.dataclass(frozen=True, **options)) for module in (dataclasses, records)]


@pytest.mark.parametrize("slots", [False, True])
def test_values_look_and_compare_the_same(slots: bool) -> None:
    for made in both(shape, slots=slots):
        one, like = made("square"), made("square", note="another", tags=[])
        assert repr(one) == f"{made.__qualname__}(name='square', sides=4, note=None, scale=1.0)"
        assert (one == like, one != like, one == made("square", 5), one == "square") == (True, False, False, False)
        assert made("square").tags is not one.tags
        assert (one.doubled, made.kind, hasattr(one, "__dict__")) == (8, "shape", not slots)
        assert dataclasses.replace(one, sides=3, scale=2.0) == made("square", 3, scale=2.0)
        assert dataclasses.asdict(like) == {"name": "square", "sides": 4, "tags": [], "note": "another", "scale": 1.0}
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)  # it holds a list
        with pytest.raises(ValueError, match="no such shape"):
            made("square", -1)
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
            made()
        with pytest.raises(TypeError, match="positional arguments"):
            made("square", 4, [], None, 2.0)
        match one:
            case made(name, 4):
                assert name == "square"
            case _:
                pytest.fail("no match")


@pytest.mark.parametrize("slots", [False, True])
def test_values_cannot_be_changed_and_are_hashable(slots: bool) -> None:
    for made in both(hashed, slots=slots):
        one = made(1, (2,))
        assert (len({one, made(1, (2,)), made(2, (1,))}), {one: 1}[made(1, (2,))]) == (2, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
            one.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
            del one.x
        assert (copy.copy(one), copy.deepcopy(one), one.x) == (one, one, 1)
    for made in both(empty, slots=slots):
        assert (made() == made(), hash(made()) == hash(made()), made() == 1) == (True, True, False)


@records.dataclass(frozen=True, slots=True)
class Kept:
    """A class that `pickle` can find."""

    name: str
    values: tuple[int, ...] = ()


@records.dataclass(frozen=True, slots=True)
class More(Kept):
    """A class with the fields of another, and a method of its own that stays."""

    unit: str = "s"

    def __repr__(self) -> str:
        return f"{self.values} {self.unit}"


def test_values_can_be_pickled_and_classes_inherited() -> None:
    for one in (Kept("a", (1,)), More("b", (2,), "ms")):
        assert pickle.loads(pickle.dumps(one)) == one
    assert (repr(More("b", (2,))), More("a") == Kept("a")) == ("(2,) s", False)
    assert [each.name for each in dataclasses.fields(More)] == ["name", "values", "unit"]


def test_what_is_not_simply_frozen_is_left_to_the_standard_library() -> None:
    @records.dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        x: int

    @records.dataclass
    class Changing:
        x: int

    assert Ordered(1) < Ordered(2)
    one = Changing(1)
    one.x = 2
    assert one == Changing(2)
    with pytest.raises(TypeError, match="`init=False` needs"):

        @records.dataclass(frozen=True)
        class Counted:
            x: int = field(default=0, init=False)


def test_the_package_has_no_slower_dataclasses() -> None:
    files = [path for folder in ("cli", "jobspec") for path in sorted((ROOT / folder).rglob("*.py"))]
    slower = [
        str(path.relative_to(ROOT))
        for path in files
        for node in statements(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(alias.name == "dataclass" for alias in node.names)
    ]
    assert slower == ["jobspec/records.py"]  # for type checkers
