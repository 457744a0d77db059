"""Scripts of shell for hosts. They are beside the code that sends them, as files that shellcheck and editors see."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from jobctl.jobspec.records import dataclass

_INCLUDE = re.compile(
    r"\. (?:\./|\.\./\.\./(\w+)/scripts/)(\w+)\.sh"
)  # a script of the same package, or of a neighbour's


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of a package."""

    package: str

    def argv(self, name: str, *arguments: str) -> list[str]:
        """Return the command that runs the script `name` on a host."""
        return ["sh", "-c", self.text(name), "sh", *arguments]

    def text(self, name: str) -> str:
        """Return the script `name` as hosts get it: in one piece, and without the comments, which cost bytes of each command."""
        return _text(self.package, name)

    def read(self) -> None:
        """Read all scripts now: when one is needed, the package may be gone, or be another version's."""
        for file in files(self.package).iterdir():
            name, _, kind = file.name.rpartition(".")
            if kind == "sh":
                self.text(name)


@cache
def _text(package: str, name: str) -> str:
    lines = (files(package) / f"{name}.sh").read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    included = [(_INCLUDE.fullmatch(line), line) for line in code]
    return "".join([_text(_place(package, found[1]), found[2]) if found else f"{line}\n" for found, line in included])


def _place(package: str, neighbour: str | None) -> str:
    """Return the package of scripts of a neighbour; without one, the same package."""
    return f"{package.rsplit('.', 2)[0]}.{neighbour}.scripts" if neighbour else package
