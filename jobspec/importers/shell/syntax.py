"""The statements of a shell script: simple commands, loops, branches, functions. By hand, for the reason that lexer.py gives."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from jobctl.jobspec.importers.draft import ImportProblem
from jobctl.jobspec.importers.shell.lexer import Lexer, Token
from jobctl.jobspec.records import dataclass

DEEPEST = 50


@dataclass(frozen=True, slots=True)
class Redirect:
    """`> file`, `2>&1`, `< file`; `here` are the lines of `<<EOF`."""

    operator: str
    target: Token
    here: str = ""


@dataclass(frozen=True, slots=True)
class Simple:
    """Words of one command, assignments before it included. `source` is how it was written."""

    words: tuple[Token, ...]
    redirects: tuple[Redirect, ...]
    line: int
    source: str


@dataclass(frozen=True, slots=True)
class For:
    """`for name in words`, or `for ((first; test; step))`, which is in `sums`."""

    name: str
    items: tuple[Token, ...]
    sums: tuple[str, ...]
    body: tuple[Statement, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Maybe:
    """What runs on a condition, or more than once: bodies of `if`, `case`, `while` and `until`; `word` says which.

    `reads` is the `read` of `while read NAME`, `redirects` where the loop reads from.
    """

    word: str
    bodies: tuple[tuple[Statement, ...], ...]
    line: int
    reads: Simple | None = None
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Function:
    """`name() { … }`."""

    name: str
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`{ …; }`, or `( … )`, whose variables and directory are its own."""

    body: tuple[Statement, ...]
    own: bool


@dataclass(frozen=True, slots=True)
class Sum:
    """`((i++))`."""

    text: str


Statement: TypeAlias = Simple | For | Maybe | Function | Group | Sum

_CLOSING = {"then", "do", "done", "fi", "else", "elif", "esac", "}"}
_JOINS = {";", "&", "&&", "||", "|", "|&"}
_BRANCH_ENDS = (";;", ";&", ";;&")  # of `case`; elsewhere none of them begins or continues a command


def parse(text: str, first: int = 1) -> tuple[Statement, ...]:
    """Return the statements of a script. Raises ImportProblem for what is no shell script."""
    parser = _Parser(Lexer(text, first).tokens())
    body = parser.body(())
    if parser.here is not None:
        raise parser.unexpected()
    return body


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens, self.at, self.depth = tokens, 0, 0

    @property
    def here(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def unexpected(self) -> ImportProblem:
        token = self.here or self.tokens[-1]
        names = {"newline": "the end of the line"}
        what = "the end" if token is self.tokens[-1] else names.get(token.kind, f"`{token.text}`")
        return ImportProblem(f"{what} is not expected here", "is it a shell script?", token.line)

    def body(self, ends: Sequence[str]) -> tuple[Statement, ...]:
        """Return statements up to one of the words in `ends`, which is left."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ImportProblem(f"nested more than {DEEPEST} levels deep", None, self.here.line if self.here else None)
        found: list[Statement] = []
        while (token := self.here) is not None:
            if token.kind == "newline" or token.text in _JOINS or token.plain == "!":
                self.at += 1
            elif token.plain in ends or (token.kind == "operator" and token.text in ends):
                break
            elif token.plain in _CLOSING or (token.kind == "operator" and token.text in (")", *_BRANCH_ENDS)):
                raise self.unexpected()
            else:
                found.append(self.statement(token))
        self.depth -= 1
        return tuple(found)

    def statement(self, token: Token) -> Statement:
        compound = {"for": self._for, "select": self._for, "if": self._if, "case": self._case, "while": self._while,
                    "until": self._while, "function": self._function, "{": self._braces, "[[": self._test}.get(token.plain)  # fmt: skip
        if compound is not None:
            statement = compound(token)
        elif token.text == "(" and token.kind == "operator":
            statement = self._parentheses()
        elif token.text == "((" and token.kind == "operator":
            self.at += 2
            statement = Sum(self.tokens[self.at - 1].text)
        elif self._names_function():
            name = token.text
            self.at += 3
            statement = self._named(name)
        else:
            return self._simple(token)
        redirects = self._redirects()
        return replace(statement, redirects=redirects) if isinstance(statement, Maybe) else statement

    def _names_function(self) -> bool:
        following = [token.text for token in self.tokens[self.at : self.at + 3]]
        return following[1:] == ["(", ")"] and re.fullmatch(r"[\w.-]+", following[0]) is not None

    def _named(self, name: str) -> Function:
        self._newlines()
        if self.here is None:
            raise self.unexpected()
        body = self.statement(self.here)
        return Function(name, (body,))

    def _function(self, token: Token) -> Statement:
        self.at += 1
        name = self._take_word()
        if self.here is not None and self.here.text == "(":
            self.at += 2
        return self._named(name.text)

    def _test(self, token: Token) -> Statement:
        """`[[ … ]]`, in which `<`, `(` and `&&` are no operators of the shell's."""
        while self.here is not None and self.here.plain != "]]":
            self.at += 1
        self._expect("]]")
        return Group((), own=False)

    def _braces(self, token: Token) -> Statement:
        self.at += 1
        body = self.body(("}",))
        self._expect("}")
        return Group(body, own=False)

    def _parentheses(self) -> Statement:
        self.at += 1
        body = self.body((")",))
        self._expect(")")
        return Group(body, own=True)

    def _for(self, token: Token) -> Statement:
        self.at += 1
        sums: tuple[str, ...] = ()
        items: list[Token] = []
        name = ""
        if self.here is not None and self.here.text == "((":
            sums = tuple(part.strip() for part in self.tokens[self.at + 1].text.split(";"))
            self.at += 2
        else:
            name = self._take_word().text
            self._newlines()
            if self.here is not None and self.here.plain == "in":
                self.at += 1
                while self.here is not None and self.here.kind == "word":
                    items.append(self._take_word())
        self._separators()
        braces = self.here is not None and self.here.plain == "{"
        self._expect("{" if braces else "do")
        body = self.body(("}" if braces else "done",))
        self._expect("}" if braces else "done")
        return For(name, tuple(items), sums, body, token.line)

    def _if(self, token: Token) -> Statement:
        bodies = []
        self.at += 1
        self.body(("then",))
        self._expect("then")
        while True:
            bodies.append(self.body(("elif", "else", "fi")))
            word = self.here.plain if self.here else ""
            self._expect(word or "fi")
            if word == "fi":
                return Maybe("if", tuple(bodies), token.line)
            if word == "elif":
                self.body(("then",))
                self._expect("then")

    def _while(self, token: Token) -> Statement:
        self.at += 1
        first, *_ = (*self.body(("do",)), None)
        self._expect("do")
        body = self.body(("done",))
        self._expect("done")
        reads = isinstance(first, Simple) and any(word.plain == "read" for word in first.words[:2])
        return Maybe(token.plain, (body,), token.line, first if reads and isinstance(first, Simple) else None)

    def _case(self, token: Token) -> Statement:
        self.at += 1
        self._take_word()
        self._newlines()
        self._expect("in")
        bodies = []
        while self.here is not None and self.here.plain != "esac":
            if self.here.kind == "newline" or self.here.text in _BRANCH_ENDS:
                self.at += 1
                continue
            self._pattern()
            bodies.append(self.body((*_BRANCH_ENDS, "esac")))
        self._expect("esac")
        return Maybe("case", tuple(bodies), token.line)

    def _pattern(self) -> None:
        while (token := self.here) is not None and token.text != ")":
            if token.kind == "newline":
                raise self.unexpected()
            self.at += 1
        self._expect(")")

    def _simple(self, first: Token) -> Simple:
        words: list[Token] = []
        redirects: list[Redirect] = []
        begin = self.at
        while (token := self.here) is not None and token.kind != "newline":
            if token.kind == "word":
                words.append(self._take_word())
            elif token.text in _JOINS or token.text in (")", *_BRANCH_ENDS):
                break
            elif (redirect := self._redirect()) is not None:
                redirects.append(redirect)
            else:
                raise self.unexpected()
        source = " ".join(token.text for token in self.tokens[begin : self.at])
        return Simple(tuple(words), tuple(redirects), first.line, source)

    def _redirect(self) -> Redirect | None:
        token = self.here
        if token is None or token.kind != "operator":
            return None
        if token.text.isdigit():
            self.at += 1
            return self._redirect()
        if token.text[0] not in "<>&" or token.text in ("&", "&&"):
            return None
        self.at += 1
        return Redirect(token.text, self._take_word(), token.here)

    def _redirects(self) -> tuple[Redirect, ...]:
        found = []
        while (redirect := self._redirect()) is not None:
            found.append(redirect)
        return tuple(found)

    def _take_word(self) -> Token:
        token = self.here
        if token is None or token.kind != "word":
            raise self.unexpected()
        self.at += 1
        return token

    def _expect(self, text: str) -> None:
        if self.here is None or self.here.text != text:
            raise self.unexpected()
        self.at += 1

    def _newlines(self) -> None:
        while self.here is not None and self.here.kind == "newline":
            self.at += 1

    def _separators(self) -> None:
        while self.here is not None and (self.here.kind == "newline" or self.here.text == ";"):
            self.at += 1
