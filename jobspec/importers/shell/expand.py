"""What the words of a script stand for: variables, lists, sums, and what commands would print where that can be told.

Nothing is run. What only the environment knows stays a reference to it; what nobody knows is noted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from jobctl.jobspec.importers.draft import ImportProblem
from jobctl.jobspec.importers.escaping import for_people, is_constant, literal, with_defaults
from jobctl.jobspec.importers.names import is_secret, looks_secret
from jobctl.jobspec.importers.notes import not_carried_over, to_check
from jobctl.jobspec.importers.shell import arithmetic, lists, strings
from jobctl.jobspec.importers.shell.lexer import Lexer, Token, WordPart
from jobctl.jobspec.importers.slurm import recipes

Read: TypeAlias = Callable[[str], str | None]

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_REFERENCE = re.compile(r"([A-Za-z_]\w*)(\[[^\][]+\])?(?:(:?[-=?+])(.*))?", re.DOTALL)
_ARGUMENT = re.compile(r"(\d+|#[@*]?|[@*])(?:(:?[-=?+])(.*))?", re.DOTALL)
# What is split at blanks; what nobody knows (a variable, a command's output, `${NAME%% *}`) stays one word.
_PIECE = re.compile(r"(?:\$\$\((?:[^()]|\([^()]*\))*\)|\$?\$\{[^{}]*\}|[^ \t\n])+")
_QUOTES = re.compile(r"[\"'\\]")
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*):?-([^{}$]*)\}")
# All that mean the folder of the script, or the one that it is started in.
_HERE = re.compile(
    r"pwd(\s+-[LP])?|dirname\s+(--\s+)?\"?\$(\{?BASH_SOURCE.*|0|\{0\})\"?"
    r"|(realpath|readlink\s+-f)\s+\"?(\.|\$\(dirname .*\))\"?|cd\s.*(dirname|BASH_SOURCE).*(&&|;)\s*pwd.*"
)
# Variables that mean the same.
_HERE_VARIABLES = {"PWD"}


class Expander:
    """Knows the variables of a script, and what its words come to."""

    def __init__(self, read: Read, env: dict[str, str], folder: str) -> None:
        self.read = read
        self.values: dict[str, str | list[str]] = {**env}
        self.arguments: tuple[str, ...] | None = None  # `$1`, `$2`, …; None where nobody knows them
        self.exported = set(env)
        self.all_exported = False
        self.files: dict[str, str] = {}
        self.taken: set[str] = set()  # of these files, those that something in the script reads
        self.notes: list[str] = []
        self.folder, self.asked_here = folder, False
        self.line = 0

    def check(self, text: str) -> None:
        """Note what a person has to look at."""
        self.notes.append(to_check(f"line {self.line}: {text}"))

    def dropped(self, text: str, why: str) -> None:
        """Note what is not carried over."""
        self.notes.append(not_carried_over(f"line {self.line}: {text}", why))

    def file(self, name: str) -> str | None:
        """Return the text of a file that the script wrote, or that is beside it."""
        written = name.removeprefix("./")
        if written not in self.files:
            return self.read(name)
        self.taken.add(written)
        return self.files[written]

    def set(self, name: str, item: str | list[str], *, export: bool = False) -> None:
        self.values[name] = item
        if export or self.all_exported:
            self.exported.add(name)

    def numbers(self) -> dict[str, str]:
        return {name: item for name, item in self.values.items() if isinstance(item, str)}

    def counted(self, text: str) -> str:
        """Return a sum with numbers in place of `${#LIST[@]}`."""

        def count(match: re.Match[str]) -> str:
            length = lists.length(self.values.get(match[1]))
            return match[0] if length is None else str(length)

        return re.sub(r"\$\{#(\w+)\[[@*]\]\}", count, text)

    # Words.

    def expand(self, token: Token) -> list[str]:
        """Return the words that one word of a script stands for."""
        fields: list[str] = [""]
        # `"$@"` may stand for no word at all; `""` is one.
        some = any(part.quoted for part in token.parts) and not any(map(lists.stands_for_many, token.parts))
        for part in token.parts:
            if part.kind == "text" and not part.quoted and "{" in part.text:
                fields = [f"{start}{item}" for start in fields for item in strings.braces(part.text)]
                some = True
                continue
            items = self._fields(part)
            if len(token.parts) == 1 and not part.quoted and not _QUOTES.search(part.text):
                items = [word for item in items for word in self._split_default(item)]
            some = some or any(items)
            if items:
                fields = [*fields[:-1], f"{fields[-1]}{items[0]}", *items[1:]]
        return fields if some else []

    def _fields(self, part: WordPart) -> list[str]:
        if lists.stands_for_many(part):
            return self._all(part.text)
        text = self._text(part)
        if part.kind in ("text", "file") or part.quoted:
            return [text] if text or part.quoted else []
        return _PIECE.findall(text)

    def _split_default(self, item: str) -> list[str]:
        """Return the words of `${NAME:-word word}`, of which a shell makes any number and a spec just one."""
        match = _DEFAULT.fullmatch(item)
        if match is None or (words := match[2].split()) == [match[2]]:
            return [item]
        self.check(f"`{match[1]}` may be set in the environment: its default is taken")
        return words

    def _all(self, name: str) -> list[str]:
        if name[0] in "@*" and self.arguments is not None:
            return list(self.arguments[max(0, int(name[2:] or 1) - 1) :])
        if name[0] in "@*":
            self.dropped(f'"${{{name}}}"', "arguments of the script: add what you give it to `args`")
            return []
        item = self.values.get(name.split("[")[0].removeprefix("!"))
        if item is None or lists.has_keys(item):
            return self._lost(f"${{{name}}}")
        items = item if isinstance(item, list) else [item]
        if name[0] == "!":
            length = lists.length(items)
            return self._lost(f"${{{name}}}") if length is None else [str(place) for place in range(length)]
        return items

    def _lost(self, text: str) -> list[str]:
        command, space, _ = text.partition(" ")
        told = f"{command} …" if space and looks_secret(text) else text
        self.check(f"`{told}` is not known here: put its value in")
        return [literal(text)]

    def _text(self, part: WordPart, setting: str = "") -> str:
        """Return the word that a part stands for; `setting` is the variable that is being set."""
        if part.kind == "text":
            return literal(part.text)
        if part.kind == "sum":
            return self._sum(part.text)
        if part.kind == "command":
            return self._output(part.text)
        return self._lost(part.text)[0] if part.kind == "file" else self._variable(part.text, setting)

    def _sum(self, text: str) -> str:
        try:
            return str(arithmetic.value(self.counted(text), self.numbers()))
        except ValueError:
            if (stepped := self.counts(text)) is not None:
                return stepped
            if recipes.NODE_LIST in self.values and recipes.of_job(text):
                return "0"  # a port made of the job's number: jobctl chooses one
            return self._lost(f"$(({text}))")[0]

    def counts(self, text: str) -> str | None:
        """Set the variable of `i++` or `i+=2`, and return its previous value; None where nothing is set."""
        try:
            name, number = arithmetic.assigned(self.counted(text), self.numbers())
        except ValueError:
            return None
        before = self.numbers().get(name, "")
        self.values[name] = str(number)
        return before if text.strip().endswith(("++", "--")) else str(number)

    def _output(self, text: str) -> str:
        told = self.told(text)
        return self._lost(f"$({text.strip()})")[0] if told is None else told

    def told(self, text: str) -> str | None:
        """Return what a command would print, None where that cannot be told without running it."""
        command = text.strip()
        if not command or command.startswith("#"):
            return ""
        if _HERE.fullmatch(command):
            return self._here()
        if (told := self._by_slurm(command)) is not None:
            return told
        if (told := self.printed(command)) is not None:
            return told
        words = _split(command)
        if words[:1] == ["seq"] and (numbers := arithmetic.sequence(words[1:], self.numbers())):
            return numbers
        if words[:1] == ["cat"] and len(words) == 2 and (content := self.file(words[1])) is not None:
            return literal(content.strip())
        if words[:1] == ["echo"] and not re.search(r"[|;&<>`]", command):
            return " ".join(item for token in Lexer(command).tokens()[1:] for item in self.expand(token))
        return None

    def printed(self, command: str) -> str | None:
        """Return what a command prints of a file, None if that is not known."""
        return None

    def _by_slurm(self, command: str) -> str | None:
        """Return what a command prints that asks Slurm; None outside of a batch script."""
        nodes = self.values.get("SLURM_NNODES")
        if recipes.NODE_LIST not in self.values or not isinstance(nodes, str) or not nodes.isdigit():
            return None
        return recipes.printed(command, int(nodes))

    def _here(self) -> str:
        """Return the folder that commands run in: where the job's processes run, unless it is elsewhere altogether."""
        self.asked_here = True
        return self.folder if self.folder.startswith(("/", "~")) else "."

    def _variable(self, text: str, setting: str) -> str:
        if match := _ARGUMENT.fullmatch(text):
            return self._argument(text, *match.groups())
        if re.fullmatch(r"[?$!-]", text):
            return self._lost(f"${text}")[0]
        match = _REFERENCE.fullmatch(text)
        if match is None:
            return self._special(text)
        name, place, operator, word = match.groups()
        if name in _HERE_VARIABLES and name not in self.values:
            return self._here()
        item = self._item(name, place)
        if item is not None and is_secret(name, item):
            return f"${{{name}}}"
        if item is not None:
            return self._chosen(item, operator or "", word)
        if place and not operator:
            return self._lost(f"${{{text}}}")[0]
        if name == setting and not operator:
            self.check(f"`{name}` is added to: what the image or the host has in it is not there")
            return ""
        return self._reference(name, operator, word)

    def _argument(self, text: str, place: str, operator: str | None, word: str | None) -> str:
        """Return what `$1`, `${1:-word}`, `$#` or `"$*"` is."""
        if place == "0":
            return "."
        if self.arguments is None:
            if operator not in ("-", ":-"):
                return self._lost(f"${text}" if len(text) == 1 else f"${{{text}}}")[0]
            self.check(f"`${{{text}}}` may be given to the script: its default is taken")
            return self._word(word)
        if not place.isdigit():
            return str(len(self.arguments)) if place[0] == "#" else " ".join(self.arguments)
        if int(place) > len(self.arguments):
            return self._word(word) if operator in ("-", ":-") else ""
        return self._chosen(self.arguments[int(place) - 1], operator or "", word)

    def _chosen(self, item: str, operator: str, word: str | None) -> str:
        """Return what `${NAME:-word}` and similar forms are for a variable with a known value."""
        there = bool(item) or not operator.startswith(":")
        if operator.endswith("+"):
            return self._word(word) if there else ""
        return item if there else self._word(word)

    def _item(self, name: str, place: str | None) -> str | None:
        item = self.values.get(name)
        if isinstance(item, str):
            return item if place in (None, "[0]", "[@]", "[*]") else None
        if item is None or lists.has_keys(item):
            return None
        if place in ("[@]", "[*]"):
            return " ".join(item)
        try:
            number = arithmetic.value(place[1:-1], self.numbers()) if place else 0
        except ValueError:
            return None
        return lists.at(item, number)

    def _reference(self, name: str, operator: str | None, word: str | None) -> str:
        """Return the reference by which the spec gets the variable from its environment, as the script would."""
        default = self._word(word)
        if operator in ("=", ":="):
            operator = operator.replace("=", "-")
            self.set(name, f"${{{name}{operator}{default}}}")
        if operator and ("}" in default or "{" in default):
            self.check(f"`{name}` may be set in the environment: its default is taken")
            return default
        return f"${{{name}{operator}{default}}}" if operator else f"${{{name}}}"

    def _word(self, text: str | None) -> str:
        """Return the words of a default, joined; as it stands where an apostrophe in it is one, as in `"${X:-it's}"`."""
        try:
            tokens = Lexer(text or "", self.line).tokens()
        except ImportProblem:
            if "$" in (text or ""):
                raise
            return literal(text or "")
        return " ".join(item for token in tokens if token.kind == "word" for item in self.expand(token))

    def _special(self, text: str) -> str:
        """`${#LIST[@]}`, `${NAME%%.*}` and similar forms."""
        if match := re.fullmatch(r"#(\w+)(\[[@*]\])?", text):
            item = self.values.get(match[1])
            length = len(item) if isinstance(item, str) and not match[2] else lists.length(item) if match[2] else None
            if length is not None:
                return str(length)
        if re.match(r"BASH_SOURCE|0[%#]", text):
            return "."
        if (match := strings.FORM.fullmatch(text)) and (told := self._changed(*match.groups())) is not None:
            return told
        return self._lost(f"${{{text}}}")[0]

    def _changed(self, name: str, place: str | None, operator: str, word: str) -> str | None:
        """Return what `${NAME%%.*}` is where the variable's value is known, and no secret."""
        given = self.arguments or ()
        item = (
            self._item(name, place) if not name.isdigit() else (("", *given)[int(name) : int(name) + 1] or (None,))[0]
        )
        if item is None or not is_constant(item) or is_secret(name, item):
            return None
        told = strings.changed(for_people(item), operator, word)
        return None if told is None else literal(told)

    def assigned(self, token: Token, match: re.Match[str]) -> str | list[str]:
        first, *rest = token.parts
        if token.parts[-1].quoted and token.parts[-1].text.startswith("(") and token.text.endswith(")"):
            words = [word for word in Lexer(token.parts[-1].text[1:-1], token.line).tokens() if word.kind == "word"]
            return lists.joined(self._items_before(match), ((word, self.expand(word)) for word in words))
        parts = [replace(first, text=first.text[match.end() :]), *rest]
        itself = [part for part in parts if part.text] == [
            WordPart("variable", match[1], rest[-1].quoted if rest else False)
        ]
        value = "".join(self._text(part, setting="" if itself else match[1]) for part in parts)
        if any(part.kind == "variable" and part.text == match[1] for part in parts):
            value = value.strip(":")
        first_item, *others = self._items_before(match) or [""]
        return [f"{first_item}{value}", *others] if others else f"{first_item}{value}"

    def _items_before(self, match: re.Match[str]) -> list[str]:
        """Return what `NAME+=` adds to: the items of a list, or a text as one; nothing where `NAME=` replaces it."""
        item = self.values.get(match[1], []) if match[2] else []
        return item if isinstance(item, list) else [item]


def assignment(token: Token) -> re.Match[str] | None:
    first = token.parts[0] if token.parts else None
    return _ASSIGNMENT.match(first.text) if first and first.kind == "text" and not first.quoted else None


# What a shell puts the names of files in place of, and somebody's home directory.
_PATTERN = re.compile(r"[*?]|\[[^\],'\"]+\]")
_HOME = re.compile(r"~[\w.-]*(/|$)")


def is_pattern(token: Token, word: str, values: Mapping[str, object]) -> bool:
    """Say whether a shell makes something else of `word`, which a word of a script stands for: `*.txt`, `~/data`."""
    first, *_ = token.parts
    if _HOME.match(word) and not (first.kind == "text" and first.quoted):
        return True
    open_ = [part for part in token.parts if not part.quoted]
    texts = [part.text if part.kind == "text" else str(values.get(part.text, "")) for part in open_]
    return bool(_PATTERN.search(word)) and any(map(_PATTERN.search, texts))


def settled_or_empty(word: str) -> str:
    """Return the text of a word, nothing if that is not known."""
    try:
        return with_defaults(word)
    except ValueError:
        return ""


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []
