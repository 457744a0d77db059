"""`dataclass` of the standard library, which takes a fifth of the time to make a frozen class.

Every command defines 100 to 220 such classes before it does anything. The standard library compiles six methods for each
of them; here all classes share five, and only `__init__` is compiled. That saves a tenth of the CPU time of a command
(docs/performance.md). In all else these classes are dataclasses: `fields`, `replace`, `asdict` and type checkers see no
difference.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, **options):
        """Return a dataclass; what is not just frozen, with slots or not, is left to the standard library."""
        if not frozen or options.keys() - {"slots"}:
            return dataclasses.dataclass(cls, frozen=frozen, **options)

        def made(plain):
            return _frozen(plain, **options)

        return made if cls is None else made(cls)


def _frozen(plain: Any, slots: bool = False) -> Any:
    """Return a class as a frozen dataclass. Methods that it defines itself stay."""
    own = set(vars(plain))
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(plain)
    names = [field.name for field in fields(made) if field.compare]
    made.__compared__ = attrgetter(*names) if names else type
    if "__init__" not in own:
        made.__init__ = _init(made)
    for name, method in _METHODS.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _init(made: Any) -> Any:
    """Compile the `__init__` of a class: its source is made of the names of fields, its defaults are objects."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": MISSING}
    by_place, by_name, body = ["self"], list[str](), list[str]()
    for field in fields(made):
        if not field.init:
            raise TypeError(f"{made.__name__}.{field.name}: `init=False` needs `dataclasses.dataclass`")
        name = parameter = value = field.name
        if field.default_factory is not MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameter, value = f"{name}=_missing", f"_make_{name}() if {name} is _missing else {name}"
        elif field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        (by_name if field.kw_only else by_place).append(parameter)
        body.append(f"    _set(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        body.append("    self.__post_init__()")
    parameters = ", ".join([*by_place, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n" + "\n".join(body or ["    pass"]), scope)
    return scope["__init__"]


def _repr(self: Any) -> str:
    values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({values})"


def _eq(self: Any, other: object) -> bool:
    compared = type(self).__compared__
    return bool(compared(self) == compared(other)) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(type(self).__compared__(self))


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    """Return what `pickle` and `copy` keep: without it they would set fields one by one."""
    return [getattr(self, field.name) for field in fields(self)]


def _set_state(self: Any, values: list[object]) -> None:
    for field, value in zip(fields(self), values, strict=True):
        object.__setattr__(self, field.name, value)


_METHODS = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
