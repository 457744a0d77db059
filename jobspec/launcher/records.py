"""What makes a class with annotations a record, as `dataclasses` does.

That module, with what it imports, would be a tenth of the time that each launcher and each guard of a process takes to
start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, Type, TypeVar, dataclass_transform

    from jobctl.jobspec.launcher.system.files import Json

    T = TypeVar("T")

    @dataclass_transform()
    def record(cls: Type[T]) -> Type[T]:
        """Give a class `__init__`, `__eq__` and `__repr__`. Its fields are its annotations, in their order."""


if not TYPE_CHECKING:

    def record(cls):
        """Give a class `__init__`, `__eq__` and `__repr__`. Its fields are its annotations, in their order."""
        names = tuple(cls.__annotations__)

        def init(self, *args, **fields):
            fields.update(zip(names, args))
            if not fields.keys() <= set(names) or not all(name in fields or hasattr(cls, name) for name in names):
                raise TypeError("%s has the fields %s" % (cls.__name__, ", ".join(names)))
            for name in names:
                setattr(self, name, fields[name] if name in fields else getattr(cls, name))

        cls.__init__ = init
        cls.__eq__ = lambda self, other: type(other) is cls and vars(self) == vars(other)
        cls.__hash__ = None
        cls.__repr__ = lambda self: "%s(%s)" % (cls.__name__, ", ".join("%s=%r" % item for item in vars(self).items()))
        return cls


def changed(of: T, **fields: Any) -> T:
    """Return a record like `of` with other values in some fields."""
    return type(of)(**{**vars(of), **fields})


def from_known(cls: Type[T], data: Dict[str, Any], **fields: Any) -> T:
    """Return a record of what it knows of a JSON object, with `fields` in the place of the same there. Raises TypeError."""
    known = {name: data[name] for name in cls.__annotations__ if name in data}
    return cls(**{**known, **fields})


def known(cls: type, data: Json) -> Json:
    """Return the fields of a record from its JSON form, what it does not know as `rest`. Raises KeyError or TypeError."""
    fields = {name: data[name] for name in cls.__annotations__ if name != "rest"}
    return {**fields, "rest": {name: value for name, value in data.items() if name not in fields}}


def with_rest(cls: Type[T], data: Json) -> T:
    """Return a record from its JSON form, with what it does not know as `rest`. Raises KeyError or TypeError."""
    return cls(**known(cls, data))


def flat(of: Any) -> Json:
    """Return the fields of a record as JSON, with its `rest` among them."""
    data = {**vars(of), **of.rest}
    del data["rest"]
    return data
