"""What commands of a script read from files and documents, where that is known: `read`, `mapfile`, `head -1 hosts`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from jobctl.jobspec.importers.draft import ImportProblem
from jobctl.jobspec.importers.escaping import Unknown, for_people, is_constant, literal, with_defaults
from jobctl.jobspec.importers.shell.expand import Expander, Read, settled_or_empty
from jobctl.jobspec.importers.shell.lexer import Lexer, Token
from jobctl.jobspec.importers.shell.script import WrittenFile
from jobctl.jobspec.importers.shell.syntax import Redirect

_FIRST = re.compile(r"head\s+-(?:n\s*)?(?P<count>\d{1,4})\s+(?P<file>\S+)")
_ONE = re.compile(r"sed\s+-n\s+(?P<quote>['\"]?)(?P<line>\d{1,4})p(?P=quote)\s+(?P<file>\S+)")
_COUNT = re.compile(r"(?:wc\s+-l\s*<\s*|cat\s+)(?P<file>[^\s|]+)(?P<pipe>\s*\|\s*wc\s+-l)?")


class InputReader(Expander):
    """Knows the files beside a script, and those that it wrote."""

    def __init__(self, read: Read, env: dict[str, str], folder: str) -> None:
        super().__init__(read, env, folder)
        self.written: list[WrittenFile] = []

    def stdin(self, redirects: Sequence[Redirect]) -> str | None:
        """Return what a command reads, as a word; None if nothing is known of it."""
        stdin = None
        for redirect in redirects:
            self.line = redirect.target.line  # those of a loop are read before anything in it
            quoted = any(part.quoted for part in redirect.target.parts)
            if redirect.here:
                stdin = "\n" + (literal(redirect.here) if quoted else self.document(redirect.here))
            elif redirect.operator == "<<<":
                stdin = " ".join(self.expand(redirect.target))
            elif redirect.operator == "<" and [part.kind for part in redirect.target.parts] == ["file"]:
                stdin = self._of_command(redirect.target.text)
            elif redirect.operator == "<":
                text = self.named_file("".join(self.expand(redirect.target)))
                stdin = None if text is None else literal(text)
        return stdin

    def _of_command(self, text: str) -> str | None:
        """Return what the command in `<(command)` prints."""
        if (told := self.told(text[2:-1])) is None:
            self.check(f"`{text}` is not known here: what the script reads of it is missing")
        return told

    def named_file(self, word: str) -> str | None:
        """Return the text of the file that a word names."""
        name = settled_or_empty(word)
        return self.file(name) if name else None

    def document(self, text: str) -> str:
        """Return the word that the lines of `<<EOF` are, with the values of variables in them."""
        quoted = re.sub(r'(\\*)"', lambda found: found[1] + "\\" * (len(found[1]) % 2 + 1) + '"', text)
        try:
            return " ".join(self.expand(Lexer(f'"{quoted}"', self.line).tokens()[0]))
        except ImportProblem:
            return literal(text)

    def printed(self, command: str) -> str | None:
        """Return what a command prints of a file, None if that is not known."""
        match = next((found for pattern in (_FIRST, _ONE, _COUNT) if (found := pattern.fullmatch(command))), None)
        if match is None or (match.re is _COUNT and command.startswith("cat") and not match["pipe"]):
            return None
        text = self.named_file("".join(self.expand(Lexer(match["file"], self.line).tokens()[0])))
        if text is None:
            return None
        lines = text.splitlines()
        if match.re is _COUNT:
            return str(len(lines))
        first = int(match["line"]) - 1 if match.re is _ONE else 0
        return literal("\n".join(lines[first : first + 1 if match.re is _ONE else int(match["count"])]))

    def take(self, names: Sequence[Token], prefix: Mapping[str, str | list[str]], line: str | None) -> None:
        """Set the variables of `read`, whose options are among `names`, to the parts of a line, a word; None: it is not known."""
        between = prefix.get("IFS", " \t\n")
        between = for_people(between) if isinstance(between, str) else ""
        said = [token.text for token in names]
        wanted = [name for name in said if re.fullmatch(r"[A-Za-z_]\w*", name)]
        if line is None:
            for name in wanted:
                self.values.pop(name, None)
            return
        if (text := self._settled(line)) is None:
            self.take(names, prefix, None)
            return
        parts = [part for part in re.split(f"[{re.escape(between)}]+" if between else "$^", text.strip()) if part]
        if any(option.startswith("-") and option.endswith("a") for option in said):
            self.set(wanted[0] if wanted else "_", [literal(part) for part in parts])
            return
        for place, name in enumerate(wanted):
            last = place == len(wanted) - 1
            rest = (between[:1] or " ").join(parts[place:])
            self.set(name, literal(rest if last else "".join(parts[place : place + 1])))

    def _settled(self, line: str) -> str | None:
        """Return the text of a line, None if that is not known."""
        try:
            text = with_defaults(line)
        except Unknown:
            return None
        if not is_constant(line):
            self.check(f"`{line}` may be set in the environment: its default is taken")
        return text

    def lines(self, redirects: Sequence[Redirect]) -> Iterator[str] | None:
        """Return the lines that a loop reads, as words; None if they are not known."""
        stdin = self.stdin(redirects)
        return None if stdin is None else (line for line in stdin.splitlines() if line.strip())

    def input(self, words: list[Token], prefix: Mapping[str, str | list[str]], redirects: tuple[Redirect, ...]) -> None:
        """Set the variables of `read` and `mapfile`."""
        lines = self.lines(redirects)
        if words[0].text == "read":
            self.take(words[1:], prefix, None if lines is None else next(lines, ""))
        elif lines is not None:
            known = [self._settled(line) for line in lines]
            if None in known:
                self.values.pop(words[-1].text, None)
            else:
                self.set(words[-1].text, [literal(line or "") for line in known])

    def writes_file(self, argv: tuple[str, ...], redirects: Sequence[Redirect]) -> bool:
        """Keep what `cat > file <<EOF` writes: launchers read such files."""
        here = [redirect.here for redirect in redirects if redirect.here]
        target = [redirect.target for redirect in redirects if redirect.operator in (">", ">>")]
        if argv != ("cat",) or not here or not target:
            return False
        name = "".join(self.expand(target[0])).removeprefix("./")
        self.files[name] = here[0]
        self.written.append(WrittenFile(name, self.line, "cat"))
        return True

    def tells_file(self, head: str, redirects: Sequence[Redirect]) -> None:
        """Remember what `echo text > file` writes: its text may be a secret."""
        names = [redirect.target.text for redirect in redirects if redirect.operator in (">", ">>", ">|")]
        self.written += [WrittenFile(name, self.line, f"{head} …") for name in names if not name.startswith("/dev/")]

    def sums_up(self, text: str) -> None:
        """Set the variables of `((i++, j=2))`; one whose value is not known is no longer known."""
        for part in text.split(","):
            if self.counts(part) is None and (match := re.match(r"\s*(\w+)\s*[-+*/%]?=(?!=)", part)):
                self.values.pop(match[1], None)
