"""Documentation, messages and docstrings are in plain English: short sentences, the actor first, the terms of the field.

`DIALECT` grows: add the pattern of a sentence that a reader stumbled over, with the better wording.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDEST = 120  # columns of a line
# Where each package stands. The numbers may only go down: lower them when you have mended some.
CEILINGS = {
    "cli": 0,
    "jobspec": 3,
}
GENERATED = {"spec.md", "diagnostics.md"}  # from the code, which CEILINGS counts

DIALECT = {
    # Headless clauses: name the actor.
    r"(?:^|[.:;] |\n)(?:Who|Whoever|Whose) (?!\w+ \w+[^.]*\?)[a-z]+": "name the actor: a user who …, the process that …",
    r"(?:^|[.:;] )Of (?:the |a |an )?[a-z]+ (?:colours|that) [a-z]+": "begin with the actor",
    r"\bwhoever\b": "the person who, the process that",
    r"\b(?:to|of|by|from|for|with) who\b": "to the user who, of the process that",
    r"(?:^|[.:;] )What (?:is|was|are|were|cannot|comes|fails|hangs|has) [^?.]{3,60}? (?:is|are|was|has|goes|ends|counts)\b": "name it",
    r"\b(?:not )?told apart\b": "distinguished, separated",
    r"\bthat which\b": "what, or name it",
    r"\bof before\b": "the previous",
    r"\bof then\b": "of that time",
    r"\bthose of before\b": "the earlier ones",
    # Old words.
    r"\banew\b": "again, or restart, recreate, reinstall",
    r"\bbe (?:it|they)\b": "whether it is",
    r"\bas yet\b": "so far, yet",
    r"\bbeforehand\b": "before that",
    r"\bbelow (?:an|the|each) operator\b": "under an operator",
    r"\b(?:is|are|was|were) said\b": "say who says it, or where it is written",
    r"\b(?:and|or) (?:the|its|their) (?:like|kin)\b": "and similar …",
    r"\blately\b": "recently",
    r"\bin vain\b": "without success, or say what fails",
    r"\bthe like of\b": "such as",
    r"\bsee to it\b": "make sure",
    r"\bsees to\b": "takes care of",
    r"\bmeanwhile by\b": "in the meantime",
    r"\bknow(?:s)? (?:no|none) (?:of|such)\b": "has no, does not support",
    r"\bmean(?:s)? nothing\b": "has no effect, is not supported",
    r"\b(?:is|are|was|were) (?:not )?told(?: of| that| who| what| which| by|,|;|\.|$)": "say who tells: jobctl reports, `events` shows",
    r"\b(?:is|are) (?:not )?heard of\b": "say who hears whom",
    r"\b(?:is|are|was|were|been|being|not) waited for\b": "say who waits for what",
    r"\bgone by\b": "used, or passed",
    r"\bgo(?:es)? by\b": "use, follow",
    r"\btell(?:s)? (?:apart|\w+ from)\b.{0,30}\bwho\b": "distinguish",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bhinder(?:s|ed)?\b": "block, prevent",
    r"\b(?:the )?moment in which\b": "when",
    r"\bthe (?:one|ones) before\b": "the previous one, its predecessor",
    r"\blies? (?:there|below|beside|in|on|at)\b": "is",
    r"\bsa(?:y|id|ys) again\b": "run again, repeat",
    r"\b(?:has|have|had) (?:all|every [a-z]+|the others|them) (?:[a-z]+ )?(?:begin|end|go|write|made|restarted)\b": "makes … do",
    # Passive infinitives.
    r"\b(?:is|are|was|were) (?:not )?to be [a-z]+(?:ed|n|d|ne|ld)\b": "say who does it",
    r"\bis to be had\b": "exists, is available",
    r"(?<!there )\b(?:is|are) to (?:have|do|come|go)\b": "has to, will",
    r"\bthere is (?:nothing|no [a-z]+) to be\b": "nobody can",
    # Stand, lie, hang.
    r"\b(?:stands?|stood) (?:here|there|in|on|at|as|of|with|for itself)\b": "is in, the file has (of places: is)",
    r"\b(?:stands?|stood) still\b(?! for)": "hangs, does not move",
    # Comparatives without an object, and other short forms.
    r"\b(?:sooner|oftener)(?=[,.;:]|$)": "earlier than what?",
    r"(?:\bor|[,;:]) else\b": "otherwise",
    r"\bbut for\b": "except",
    r"\ball but\b": "all except",
    r"\bsay(?:s|ing)? (?:it|that) (?:of|for)\b": "say that … of what",
    r"\bof (?:ours|theirs)\b": "jobctl's, their",
    r"\bof its own accord\b": "by itself",
    r"\bhas it that\b": "says",
    r"(?<!here )\bis no (?:bug|fault|number|name|path|file|folder|list|host|port|place|code|reason|room)\b": "is not a (valid) …",
    r"(?<!there )\b(?:are|were|is|was) none\b": "is not one",
    r"\bsuch a one\b": "one",
    r"\bnobody there\b": "nothing there",
}
PATTERNS = {re.compile(pattern): better for pattern, better in DIALECT.items()}


def _pages() -> list[Path]:
    top = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    docs = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED]
    return [*top, *docs, *sorted((ROOT / "examples").glob("*/README.md"))]


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs, rows and list items of a page, without code, each with its line."""
    text = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.M | re.S)
    begin, parts = 0, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if parts and (not line.strip() or re.match(r"\s*(?:[-*|#]|\d+\.) ", line)):
            yield begin, " ".join(parts)
            parts = []
        if line.strip():
            begin = begin if parts else number
            parts.append(re.sub(r"`[^`]*`", "`…`", line.strip()))


def _dialect(text: str) -> Iterator[str]:
    for pattern, better in PATTERNS.items():
        for found in pattern.finditer(text):
            yield f"“{found[0].strip()}”: {better}"


@pytest.mark.parametrize("page", _pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_are_in_plain_words(page: Path) -> None:
    prose = _prose(page.read_text(encoding="utf-8"))
    assert [f"{page.name}:{line}: {one}" for line, text in prose for one in _dialect(text)] == []


@pytest.mark.parametrize("page", _pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_pages_fit(page: Path) -> None:
    """Tables and pictures cannot be wrapped."""
    lines = page.read_text(encoding="utf-8").split("\n")
    assert [n for n, line in enumerate(lines, start=1) if len(line) > WIDEST and not line.startswith(("|", "!"))] == []


def _texts(path: Path) -> Iterator[str]:
    """Yield what a person reads in a module: docstrings, and messages, which have spaces in them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield " ".join(node.value.split())


@pytest.mark.parametrize("package", CEILINGS)
def test_code_speaks_less_dialect_than_it_did(package: str) -> None:
    found = sum(len(list(_dialect(text))) for path in sorted((ROOT / package).rglob("*.py")) for text in _texts(path))
    assert found <= CEILINGS[package], f"{package} has {found} phrases of `DIALECT`: its ceiling is {CEILINGS[package]}"


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("Who outgrows a handful of hosts takes it along.", True),
        ("A user who outgrows a handful of hosts takes it along.", False),
        ("jobctl starts it anew.", True),
        ("a step of before is no bug", True),
        ("It is to be had in the image.", True),
        ("The launcher ends its processes.", False),
    ],
)
def test_the_patterns_find_the_dialect(text: str, dialect: bool) -> None:
    assert bool(list(_dialect(text))) is dialect
