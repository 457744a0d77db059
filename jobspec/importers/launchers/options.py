"""Options of launchers as tables: each row says how an option is written and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jobctl.jobspec.importers.draft import Draft, ImportProblem
from jobctl.jobspec.importers.names import UNKNOWN_OPTIONS, are_options
from jobctl.jobspec.records import dataclass

# Beside `nodes` where the launcher is told how many, and nobody can read it: what else names the nodes counts then.
NODES_TAKEN = "taken, as the command's own number is not known here"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. It becomes the key `to` of the spec, or a `part` that the launcher's own code looks at, or is dropped.

    `why` says why it is dropped; an option without any of the three is dropped without a word: jobctl does the same.
    `variable` is the environment variable that says the same.
    """

    names: tuple[str, ...]
    to: str = ""
    part: str = ""
    why: str = ""
    read: Callable[[str], Any] = str
    variable: str = ""
    value: bool = True  # whether a value follows


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it was given: how it was written, and its value as a word."""

    written: str
    word: str


class Parts:
    """The parts that were given, read where they are looked at."""

    def __init__(self, draft: Draft, given: Mapping[str, Given]) -> None:
        self._draft, self._given = draft, given

    def __contains__(self, part: str) -> bool:
        return part in self._given

    def word(self, part: str) -> str | None:
        """Return what was given as `part`, as a word."""
        return self._given[part].word if part in self._given else None

    def rank(self) -> int | None:
        """Return the `rank` of the node, None where nobody knows it."""
        word = self.word("rank") or ""
        return int(word) if re.fullmatch(r"\d{1,6}", word) else None

    def written(self, part: str) -> str:
        """Return how `part` was written."""
        return self._given[part].written

    def get(self, part: str, how: Callable[[str], Any]) -> Any:
        """Return the value of `part`, None (and a note) where it has none."""
        given = self._given.get(part)
        return None if given is None else self._draft.read(given.word, how, given.written)


def option(*names: str, **more: Any) -> Option:
    """Return a row."""
    return Option(names, **more)


_OPTION = re.compile(r"-.", re.DOTALL)


class Table:
    """The options of one launcher."""

    def __init__(self, title: str, rows: Iterable[Option], same: Callable[[str], str] = str) -> None:
        self.title, self.rows, self._same = title, tuple(rows), same
        self._by_name = {same(name): row for row in self.rows for name in row.names}
        self.variables = {row.variable: row for row in self.rows if row.variable}

    def split(
        self, words: Sequence[str], draft: Draft, line: int | None = None
    ) -> tuple[list[tuple[Option, Given]], list[str]]:
        """Return the options that `words` begin with, and what follows them. Raises ImportProblem.

        An unknown `--option=value` is noted; of an unknown `--option value` nobody can tell where it ends.
        """
        found: list[tuple[Option, Given]] = []
        at = 0
        while at < len(words) and (_OPTION.match(words[at]) or are_options(words[at:])):
            word = words[at]
            if word == "--":
                return found, list(words[at + 1 :])
            at += 1
            if not word.startswith("-"):
                draft.drop(word, UNKNOWN_OPTIONS)
                continue
            name, equals, value = word.partition("=")
            row = self._by_name.get(self._same(name))
            if row is None:
                at += self._unknown(word, words[at : at + 1], draft, line)
                continue
            if not row.value or equals:
                found.append((row, Given(word, value)))
                continue
            if at == len(words):
                raise ImportProblem(f"`{word}` of {self.title} needs a value", "the command ends there", line)
            found.append((row, Given(f"{word} {words[at]}", words[at])))
            at += 1
        return found, list(words[at:])

    def _unknown(self, word: str, following: Sequence[str], draft: Draft, line: int | None) -> int:
        if "=" not in word and following and not following[0].startswith("-"):
            hint = f"write `{word}={following[0]}` if it takes a value; options of the script follow the script"
            raise ImportProblem(f"{self.title} has no option `{word}` that jobctl knows", hint, line)
        draft.drop(word, f"{self.title} has no such option that jobctl knows")
        return 0

    def apply(
        self, given: Iterable[tuple[Option, Given]], env: dict[str, str], draft: Draft, *, env_wins: bool = False
    ) -> Parts:
        """Put options, and the variables in `env` that say the same, where they belong; takes them out of `env`."""
        from_env = [
            (row, Given(f"{name}={env.pop(name)}", word)) for name, row in self._told(env) for word in [env[name]]
        ]
        given = list(given)
        parts: dict[str, Given] = {}
        for row, one in [*given, *from_env] if env_wins else [*from_env, *given]:
            if row.to:
                value = draft.read(one.word, row.read, one.written)
                if value is not None:
                    draft.set(row.to, value)
            elif row.part:
                parts[row.part] = one
            elif row.why and (one.word or one.written.startswith("-")):
                draft.drop(one.written, row.why)
        return Parts(draft, parts)

    def _told(self, env: Mapping[str, str]) -> list[tuple[str, Option]]:
        return [(name, self.variables[name]) for name in env if name in self.variables]


def require_script(rest: Sequence[str], usage: str, line: int | None) -> None:
    """Raise ImportProblem unless a script follows the options."""
    if not rest or not rest[0]:
        raise ImportProblem("the launcher is given no script", usage, line)
