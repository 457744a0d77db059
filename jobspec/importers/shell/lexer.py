"""The words of a shell script, with what is quoted in them and what has to be filled in. Nothing is run.

By hand, as words keep what is not known yet (escaping.py); tree-sitter-bash gives a tree of text, and bashlex is under the GPL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from jobctl.jobspec.importers.draft import ImportProblem
from jobctl.jobspec.importers.escaping import OUTER
from jobctl.jobspec.records import dataclass

Kind = Literal["text", "variable", "command", "sum", "file"]


@dataclass(frozen=True, slots=True)
class WordPart:
    """A piece of a word: text, `$VAR`, `$(command)`, `$((sum))`, or the file that `<(command)` and `>(command)` are.

    Of a variable, `text` is what stands between the braces.
    """

    kind: Kind
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A word (with its parts), an operator, or the end of a line."""

    kind: Literal["word", "operator", "newline"]
    text: str
    line: int
    parts: tuple[WordPart, ...] = ()
    here: str = ""  # the lines that `<<EOF` takes

    @property
    def plain(self) -> str:
        """The text of a word that is not quoted anywhere, otherwise nothing: only such words are keywords."""
        if self.kind == "word" and len(self.parts) == 1 and self.parts[0] == WordPart("text", self.text):
            return self.text
        return ""


OPERATORS = re.compile(r"&>>|&>|<<<|<<-|<<|>>|>&|<&|<>|>\||&&|\|\||\|&|;;&|;;|;&|[0-9]+(?=[<>])|[;&|<>()]")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_END = " \t\r\n;&|<>()"
_ESCAPED = re.compile(r"\$'((?:[^\\']|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.))", re.DOTALL)
_OF_OUTER = re.compile(rf"\$\{{{OUTER}([^{{}}]*)\}}")
_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Lexer:
    """Reads one script."""

    def __init__(self, text: str, first: int = 1) -> None:
        self.text, self.at, self.line = text.replace("\r\n", "\n"), 0, first
        self.waiting: list[tuple[int, str, bool]] = []  # documents that begin after this line: place, ending, tabs

    def tokens(self) -> list[Token]:
        """Return the tokens of the script. Raises ImportProblem for what is never closed."""
        found: list[Token] = []
        for token in self._tokens():
            found.append(token)
            if token.kind == "word" and len(found) > 1 and found[-2].text in ("<<", "<<-"):
                ending = "".join(part.text for part in token.parts)
                self.waiting.append((len(found) - 2, ending, found[-2].text == "<<-"))
            if token.kind == "newline" and self.waiting:
                self._here_documents(found)
        return [*found, Token("newline", "\n", self.line)]

    def _tokens(self) -> Iterator[Token]:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "\n":
                line = self.line
                self._forward(1)
                yield Token("newline", "\n", line)
            elif char in " \t\r":
                self._forward(1)
            elif self.text.startswith("\\\n", self.at):
                self._forward(2)
            elif char == "#":
                end = self.text.find("\n", self.at)
                self._forward((end if end >= 0 else len(self.text)) - self.at)
            elif self.text.startswith("((", self.at):
                yield Token("operator", "((", self.line)
                yield Token("word", self._sum(), self.line)
            elif (match := OPERATORS.match(self.text, self.at)) and not self._substitutes():
                token = Token("operator", match[0], self.line)
                self._forward(len(match[0]))
                yield token
            else:
                yield self._word()

    def _forward(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def _sum(self) -> str:
        """Return what stands between `((` and `))`."""
        return self._until("((", "))", self.line)[2:-2]

    def _until(self, opening: str, closing: str, line: int) -> str:
        """Return the text from here to the `closing` that belongs to the `opening` here, and go behind it."""
        at, depth = self.at + len(opening), opening.count("(") + opening.count("{")
        down, up = closing[0], {")": "(", "}": "{"}[closing[0]]
        while at < len(self.text) and depth:
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char in "'\"" and not (char == "'" and opening == "${"):
                at = self._closing_quote(at, line)
            elif char == "#" and opening in ("(", "$(", "<(", ">(") and self.text[at - 1] in " \t\n;(":
                end = self.text.find("\n", at)  # of a comment, in which nothing opens or closes
                at = (end if end >= 0 else len(self.text)) - 1
            elif char == up:
                depth += 1
            elif char == down:
                depth -= 1
            at += 1
        if depth:
            raise ImportProblem(f"the `{opening}` that is opened here is never closed", f"add `{closing}`", line)
        text = self.text[self.at : at]
        self._forward(at - self.at)
        return text

    def _closing_quote(self, at: int, line: int) -> int:
        quote = self.text[at]
        end = at + 1
        while end < len(self.text) and self.text[end] != quote:
            end += 2 if quote == '"' and self.text[end] == "\\" else 1
        if end >= len(self.text):
            line += self.text.count("\n", self.at, at)
            raise ImportProblem("the quote that is opened here is never closed", f"add `{quote}`", line)
        return end

    # Words.

    def _word(self) -> Token:
        line, start = self.line, self.at
        parts: list[WordPart] = []
        while self.at < len(self.text) and (self.text[self.at] not in _END or self._substitutes()):
            parts += self._parts(line)
        # An array: `HOSTS=(a b)`.
        if self.text[self.at : self.at + 1] == "(" and re.fullmatch(r"[A-Za-z_]\w*\+?=", self.text[start : self.at]):
            parts.append(WordPart("text", self._until("(", ")", line), quoted=True))
        return Token("word", self.text[start : self.at].replace(OUTER, ""), line, tuple(_joined(parts)))

    def _substitutes(self) -> bool:
        """Say whether `<(command)` or `>(command)` begins here."""
        return self.text.startswith(("<(", ">("), self.at)

    def _parts(self, line: int) -> Iterator[WordPart]:
        char = self.text[self.at]
        if self._substitutes():
            yield WordPart("file", self._until(f"{char}(", ")", line).replace(OUTER, ""))
        elif char == "'":
            end = self._closing_quote(self.at, line)
            for place, text in enumerate(_OF_OUTER.split(self.text[self.at + 1 : end])):
                yield WordPart("variable" if place % 2 else "text", text, quoted=True)
            self._forward(end + 1 - self.at)
        elif char == '"':
            yield from self._double_quoted()
        elif char == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            self._forward(2)
            if following not in ("", "\n"):
                yield WordPart("text", following, quoted=True)
        elif char in "$`":
            yield self._dollar(quoted=False)
        else:
            end = self.at
            while end < len(self.text) and self.text[end] not in _END + "'\"\\$`":
                end += 1
            yield WordPart("text", self.text[self.at : end])
            self._forward(end - self.at)

    def _double_quoted(self) -> Iterator[WordPart]:
        end = self._closing_quote_of_double()
        self._forward(1)
        text = ""
        while self.at < end:
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1] in '$`"\\\n':
                text += self.text[self.at + 1].replace("\n", "")
                self._forward(2)
            elif char in "$`":
                yield WordPart("text", text, quoted=True)
                text = ""
                yield self._dollar(quoted=True)
            else:
                text += char
                self._forward(1)
        yield WordPart("text", text, quoted=True)
        self._forward(1)

    def _closing_quote_of_double(self) -> int:
        """Return where the double quote here is closed; quotes inside of `$(…)` are others."""
        at = self.at + 1
        while at < len(self.text) and self.text[at] != '"':
            if self.text[at] == "\\":
                at += 1
            elif self.text.startswith("$(", at) or self.text.startswith("${", at):
                inner = Lexer(self.text, self.line)
                inner.at = at
                opening = self.text[at : at + 2]
                inner._until(opening, {"$(": ")", "${": "}"}[opening], self.line)
                at = inner.at - 1
            at += 1
        if at >= len(self.text):
            raise ImportProblem("the quote that is opened here is never closed", 'add `"`', self.line)
        return at

    def _dollar(self, *, quoted: bool) -> WordPart:
        line = self.line
        if self.text[self.at] == "`":
            end = self.text.find("`", self.at + 1)
            if end < 0:
                raise ImportProblem("the backtick that is opened here is never closed", "add a backtick", line)
            text = self.text[self.at + 1 : end]
            self._forward(end + 1 - self.at)
            return WordPart("command", text, quoted)
        if self.text.startswith("$((", self.at):
            return WordPart("sum", self._until("$((", "))", line)[3:-2].replace(OUTER, ""), quoted)
        if self.text.startswith("$(", self.at):
            return WordPart("command", self._until("$(", ")", line)[2:-1].replace(OUTER, ""), quoted)
        if self.text.startswith("${", self.at):
            return WordPart("variable", self._until("${", "}", line)[2:-1].removeprefix(OUTER), quoted)
        if self.text.startswith("$'", self.at) and not quoted:
            return self._escaped(line)
        if self.text.startswith('$"', self.at) and not quoted:
            self._forward(1)
            return WordPart("text", "", quoted)
        name = _NAME.match(self.text, self.at + 1)
        self._forward(1 + (len(name[0]) if name else 0))
        return WordPart("variable", name[0], quoted) if name else WordPart("text", "$", quoted=True)

    def _escaped(self, line: int) -> WordPart:
        """`$'a\tb'`: text with escapes, as C has them."""
        match = _ESCAPED.match(self.text, self.at)
        if match is None:
            raise ImportProblem("the quote that is opened here is never closed", "add `'`", line)
        self._forward(len(match[0]))
        return WordPart("text", _ESCAPE.sub(_meant, match[1]), quoted=True)

    # Here documents.

    def _here_documents(self, found: list[Token]) -> None:
        for place, ending, tabs in self.waiting:
            lines = []
            for line in iter(self._line, None):
                line = line.lstrip("\t") if tabs else line
                if line == ending:
                    break
                lines.append(f"{line}\n")
            found[place] = replace(found[place], here="".join(lines))
        self.waiting.clear()

    def _line(self) -> str | None:
        """Return the line from here on and go behind it, None at the end."""
        if self.at >= len(self.text):
            return None
        end = self.text.find("\n", self.at)
        line = self.text[self.at : end if end >= 0 else len(self.text)]
        self._forward(len(line) + (end >= 0))
        return line.replace(OUTER, "")


def _meant(match: re.Match[str]) -> str:
    """Return the character that an escape means; one that is no character of its own stays as it is written."""
    byte, point, octal, letter = match.groups()
    if letter is not None:
        return _LETTERS.get(letter, letter if letter in "\\'\"?" else match[0])
    code = int(octal, 8) if octal else int(byte or point, 16)
    whole = 0 < code < 0x80 or (point is not None and code >= 0x80 and not 0xD800 <= code < 0xE000)
    return chr(code) if whole else match[0]


def _joined(parts: list[WordPart]) -> Iterator[WordPart]:
    """Join neighbours that are alike; text that is not quoted matters apart from text that is."""
    last: WordPart | None = None
    for part in parts:
        if last is not None and last.kind == part.kind == "text" and last.quoted == part.quoted:
            last = WordPart("text", last.text + part.text, last.quoted)
            continue
        if last is not None:
            yield last
        last = part
    if last is not None:
        yield last
