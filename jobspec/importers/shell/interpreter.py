"""A reader of launch scripts: which commands they would start, with which variables. Nothing is run.

It knows what such scripts use: variables and exports, quotes, continued lines, loops over numbers and hosts, functions.
What only running it could tell (`$(hostname)`, which branch of an `if`) is never guessed: it stays a reference to the
environment, or is noted.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

from jobctl.jobspec.importers.draft import ImportProblem
from jobctl.jobspec.importers.escaping import for_shell, is_constant
from jobctl.jobspec.importers.shell import arithmetic
from jobctl.jobspec.importers.shell.expand import Read, assignment, is_pattern, settled_or_empty
from jobctl.jobspec.importers.shell.inputs import InputReader
from jobctl.jobspec.importers.shell.lexer import Token
from jobctl.jobspec.importers.shell.script import Command, Script
from jobctl.jobspec.importers.shell.strings import MOST_ROUNDS
from jobctl.jobspec.importers.shell.syntax import For, Function, Group, Maybe, Redirect, Simple, Statement, Sum, parse

MOST_COMMANDS = 4096
MOST_STEPS = 100_000


def read_script(
    text: str,
    read: Read,
    env: Mapping[str, str] | None = None,
    first: int = 1,
    folder: str = ".",
    arguments: tuple[str, ...] | None = None,
) -> Script:
    """Return what the script `text` would start. Raises ImportProblem for what is no script.

    `read` returns the text of a file that the script names, None if there is none. `env` and `arguments` are what the
    script is given; None: nobody knows which arguments.
    """
    reader = _Reader(read, dict(env or {}), folder)
    reader.arguments = arguments
    reader.run(parse(_without_prompts(text), first))
    notes = tuple(dict.fromkeys(reader.notes))
    written = tuple(dict.fromkeys(reader.written))
    return Script(tuple(reader.commands), notes, reader.env(), reader.files, written, frozenset(reader.taken))


def _without_prompts(text: str) -> str:
    """Return `text` without the `$ ` that documents show before a command."""
    return re.sub(r"^([ \t]*)\$ ", r"\1", text, flags=re.MULTILINE)


class _Reader(InputReader):
    """Goes through the statements of a script."""

    def __init__(self, read: Read, env: dict[str, str], folder: str) -> None:
        super().__init__(read, env, folder)
        self.functions: dict[str, tuple[Statement, ...]] = {}
        self.commands: list[Command] = []
        self.maybe = ""
        self.logged = False
        self.shifted = False  # since the branch began that is gone through
        self.last_folder, self.folders = folder, list[str]()  # of `cd -`, and of `popd`
        self.depth = self.steps = 0

    def run(self, statements: tuple[Statement, ...]) -> None:
        """Go through statements in order."""
        self.depth += 1
        if self.depth > 30:
            raise ImportProblem("the script calls itself", None, self.line or None)
        for statement in statements:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise ImportProblem("the script goes on for ever", "import the command alone, after `--`", self.line)
            self._statement(statement)
        self.depth -= 1

    def _statement(self, statement: Statement) -> None:
        if isinstance(statement, Simple):
            self._simple(statement)
        elif isinstance(statement, For):
            self._for(statement)
        elif isinstance(statement, Maybe):
            self._maybe(statement)
        elif isinstance(statement, Function):
            self.functions[statement.name] = statement.body
        elif isinstance(statement, Sum):
            self.sums_up(statement.text)
        else:
            self._group(statement)

    # Compound statements.

    def _group(self, group: Group) -> None:
        if not group.own:
            self.run(group.body)
            return
        before = dict(self.values), set(self.exported), self.folder
        self.run(group.body)
        self.values, self.exported, self.folder = before

    def _for(self, loop: For) -> None:
        self.line = loop.line
        rounds = self._sums(loop) if loop.sums else ((loop.name, item) for item in self._items(loop))
        for count, (name, item) in enumerate(rounds):
            if count >= MOST_ROUNDS:
                raise ImportProblem(f"a loop of more than {MOST_ROUNDS} rounds", None, loop.line)
            self.values[name] = item
            self.run(loop.body)

    def _items(self, loop: For) -> list[str]:
        return [item for token in loop.items for item in self.expand(token)]

    def _sums(self, loop: For) -> Iterator[tuple[str, str]]:
        first, test, step = (*loop.sums, "", "", "")[:3]
        try:
            name, number = arithmetic.assigned(self.counted(first), self.numbers())
            while True:
                self.values[name] = str(number)
                if not arithmetic.value(self.counted(test), self.numbers()):
                    return
                yield name, str(number)
                _, number = arithmetic.assigned(step, self.numbers())
        except ValueError:
            self.check(f"how often `for (({'; '.join(loop.sums)}))` goes round is not known: once is taken")
            yield (re.match(r"\s*(\w+)\s*=", first) or ["", "_"])[1], "0"

    def _reads(self, loop: Maybe) -> bool:
        """Go through `while read NAME` once for each line that is known; say whether they are."""
        assert loop.reads is not None
        lines = self.lines(loop.redirects)
        words = list(loop.reads.words)
        prefix = {}
        while words and (match := assignment(words[0])):
            prefix[match[1]] = self.assigned(words.pop(0), match)
        if lines is None:
            self.take(words[1:], prefix, None)
        for line in lines or ():
            self.take(words[1:], prefix, line)
            self.run(loop.bodies[0])
        return lines is not None

    def _maybe(self, branch: Maybe) -> None:
        """Go through each body; what it sets holds only where nothing did before, and only as a default."""
        if branch.reads is not None and self._reads(branch):
            return
        before, outer = dict(self.values), self.maybe
        folder, arguments, shifted = self.folder, self.arguments, self.shifted
        self.shifted = False
        for body in branch.bodies:
            self.values, self.folder = dict(before), folder
            # Of those that a loop shifts only its first round has the first.
            self.arguments = None if branch.word in ("while", "until") else arguments
            self.maybe = outer or branch.word
            self.run(body)
            for name, item in self.values.items():
                if before.get(name) != item:
                    self._perhaps(before, name, item, branch)
        self.values, self.maybe, self.folder = before, outer, folder
        self.arguments, self.shifted = None if self.shifted else arguments, self.shifted or shifted

    def _perhaps(self, before: dict[str, str | list[str]], name: str, item: str | list[str], branch: Maybe) -> None:
        self.line = branch.line
        if name in before:
            if not str(before[name]).startswith(f"${{{name}:-"):
                self.check(f"`{name}` depends on an `{branch.word}`: what it is before that is taken")
            elif before[name] != f"${{{name}:-{item}}}":
                self.check(f"`{name}` depends on an `{branch.word}`: its first value is taken as the default")
        elif isinstance(item, str) and is_constant(item) and "}" not in item:
            before[name] = f"${{{name}:-{item}}}"

    # Simple commands.

    def _simple(self, command: Simple) -> None:
        self.line = command.line
        words = list(command.words)
        prefix: dict[str, str | list[str]] = {}
        while words and (match := assignment(words[0])):
            prefix[match[1]] = self.assigned(words.pop(0), match)
        if words[1:2] and words[1].plain == "=" and re.fullmatch(r"[A-Za-z_]\w*", words[0].text):
            # `NAME = value`, as lists of variables are written.
            self.set(words[0].text, "".join(item for token in words[2:] for item in self.expand(token)), export=True)
            return
        if not words:
            for name, item in prefix.items():
                self.set(name, item, export=self.all_exported)
            return
        head = words[0].text
        if head in ("read", "mapfile", "readarray"):
            self.input(words, prefix, command.redirects)
            return
        if head == "exec" and not words[1:]:  # the output of all that follows
            self.logged = self.logged or _to_file(command.redirects)
            return
        builtin = _BUILTINS.get(head)
        if builtin is not None:
            builtin(self, words[1:])
            if builtin is _Reader._nothing:
                self.tells_file(head, command.redirects)
            return
        expanded = [(token, item) for token in words for item in self.expand(token)]
        argv = tuple(item for _, item in expanded)
        if not argv:
            return
        if argv[0] in self.functions:
            self._call(argv, prefix)
        elif not self.writes_file(argv, command.redirects):
            patterns = tuple(item for token, item in expanded if is_pattern(token, item, self.values))
            self._command(argv, prefix, command, patterns)

    def _call(self, argv: tuple[str, ...], prefix: Mapping[str, str | list[str]]) -> None:
        """Go through a function; its arguments, and the variables before its name, are there until it ends."""
        arguments, values, exported = self.arguments, dict(self.values), set(self.exported)
        self.arguments = argv[1:]
        for name, item in prefix.items():
            self.set(name, item, export=True)
        self.run(self.functions[argv[0]])
        self.arguments = arguments
        for name in prefix:
            self.values.pop(name, None)
            self.values |= {name: values[name]} if name in values else {}
            self.exported -= {name} - exported

    def _command(
        self,
        argv: tuple[str, ...],
        prefix: Mapping[str, str | list[str]],
        command: Simple,
        patterns: tuple[str, ...],
    ) -> None:
        env = {**self.env(), **{name: item for name, item in prefix.items() if isinstance(item, str)}}
        logged = self.logged or _to_file(command.redirects)
        reads = any(redirect.operator.startswith("<") for redirect in command.redirects)
        reads = reads or any(part.kind == "file" for token in command.words for part in token.parts)
        text = "" if reads else " ".join(token.text for token in command.words)
        source, line, stdin = command.source, command.line, self.stdin(command.redirects)
        self.commands.append(Command(argv, env, line, source, text, self.maybe, self.folder, logged, patterns, stdin))
        if len(self.commands) > MOST_COMMANDS:
            raise ImportProblem(f"more than {MOST_COMMANDS} commands", None, command.line)

    def env(self) -> dict[str, str]:
        """Return what commands are given now."""
        return {n: item for n, item in self.values.items() if n in self.exported and isinstance(item, str)}

    # Commands of the shell itself.

    def _export(self, words: list[Token]) -> None:
        for token in words:
            if match := assignment(token):
                self.set(match[1], self.assigned(token, match), export=True)
            elif re.fullmatch(r"[A-Za-z_]\w*", token.text):
                self.exported.add(token.text)
            elif any(part.kind in ("command", "variable") for part in token.parts):
                self.check(f"`export {token.text}`: what it sets is not known here; say it in `env`, or in `env_file`")

    def _declare(self, words: list[Token]) -> None:
        export = any(token.text.startswith("-") and "x" in token.text for token in words)
        for token in words:
            if match := assignment(token):
                self.set(match[1], self.assigned(token, match), export=export)

    def _options(self, words: list[Token]) -> None:
        texts = [token.text for token in words]
        if "-a" in texts or "allexport" in texts:
            self.all_exported = "+o" not in texts
        elif "+a" in texts:
            self.all_exported = False

    def _cd(self, words: list[Token]) -> None:
        words = [token for token in words if token.plain not in ("-L", "-P", "-e", "--")]
        if [token.plain for token in words] == ["-"]:
            self.last_folder, self.folder = self.folder, self.last_folder
            return
        self.last_folder = self.folder
        asked = self.asked_here
        target = "".join(item for token in words for item in self.expand(token))
        self.asked_here = asked  # `cd $(dirname $0)` leaves no path behind
        if self.asked_here and target != ".":
            self.check("the folder changes after `pwd` was asked: paths made of it may be wrong")
        if not is_constant(target):
            self.check(f"`cd {target}`: the folder is not known here; `code` may have to name it")
        elif target.startswith(("/", "~")) or self.folder == ".":
            self.folder = target or "~"
        elif target != ".":
            self.folder = posixpath.normpath(f"{self.folder}/{target}")

    def _pushd(self, words: list[Token]) -> None:
        self.folders.append(self.folder)
        self._cd(words)

    def _popd(self, words: list[Token]) -> None:
        if self.folders:
            self.last_folder, self.folder = self.folder, self.folders.pop()

    def _source(self, words: list[Token]) -> None:
        name = settled_or_empty("".join(item for token in words[:1] for item in self.expand(token)))
        text = self.file(name) if name else None
        if text is None or len(self.functions) > 1000:
            self.dropped(f"source {name or '…'}", "there is no such file here; what it sets is not known")
            return
        line, arguments = self.line, self.arguments
        try:
            if words[1:]:
                self.arguments = tuple(item for token in words[1:] for item in self.expand(token))
            self.run(parse(text))
        except ImportProblem as problem:
            self.line = line
            self.dropped(f"source {name}", f"line {problem.line or 1} of it: {problem.message}")
        self.arguments = arguments

    def _unset(self, words: list[Token]) -> None:
        for token in words:
            self.values.pop(token.text, None)
            self.exported.discard(token.text)

    def _shift(self, words: list[Token]) -> None:
        by = words[0].text if words else "1"
        if self.arguments is not None:
            self.arguments = self.arguments[int(by) :] if by.isdigit() else None
        self.shifted = True

    def _nothing(self, words: list[Token]) -> None:
        """Do nothing, as do commands that only tell, wait or end."""

    def _let(self, words: list[Token]) -> None:
        for token in words:
            self.sums_up("".join(self.expand(token)))

    def _colon(self, words: list[Token]) -> None:
        """`: ${NAME:=value}` sets a variable."""
        for token in words:
            self.expand(token)

    def _eval(self, words: list[Token]) -> None:
        text = " ".join(item for token in words for item in self.expand(token))
        self.run(parse(for_shell(text), self.line))


def _to_file(redirects: tuple[Redirect, ...]) -> bool:
    """Say whether output goes to a file, or to a command that `>(command)` starts."""
    return any(redirect.operator in (">", ">>", "&>", "&>>", ">|") for redirect in redirects)


# fmt: off
_BUILTINS: dict[str, Callable[[_Reader, list[Token]], None]] = {
    "export": _Reader._export,
    "declare": _Reader._declare, "typeset": _Reader._declare, "local": _Reader._declare, "readonly": _Reader._declare,
    "set": _Reader._options,
    "cd": _Reader._cd, "pushd": _Reader._pushd, "popd": _Reader._popd,
    "source": _Reader._source, ".": _Reader._source,
    "unset": _Reader._unset,
    ":": _Reader._colon,
    "shift": _Reader._shift,
    "let": _Reader._let,
    "eval": _Reader._eval,
    **dict.fromkeys(
        ("echo", "printf", "wait", "sleep", "trap", "true", "false", "exit", "return", "shopt", "date",
         "hostname", "pwd", "which", "type", "test", "[", "[[", "break", "continue", "ls", "tee",
         "nvidia-smi", "npu-smi", "whoami", "uname", "alias", "jobs", "kill", "pkill", "killall"),
        _Reader._nothing,
    ),
}
# fmt: on
