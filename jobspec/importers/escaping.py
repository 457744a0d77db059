"""Text as the spec writes it: `$$` is a dollar, `${VAR}` and `${VAR:-default}` are filled in when the spec is read.

A shell fills in the variables of its environment just so, hence what a script leaves to its environment can be left to
the spec's. All words of commands are kept in this form, from the reader of the shell to the file that is written.
"""

from __future__ import annotations

import re

# A dollar that is one, and a reference, with its default if that holds no reference itself.
_PART = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?:(:?[-?+])([^{}$]*))?\}|\$\{")


class Unknown(ValueError):
    """A word whose text depends on a variable that nobody knows yet."""


def literal(text: str) -> str:
    """Return the word that is `text` and nothing else."""
    return text.replace("$", "$$")


def for_people(word: str) -> str:
    """Return a word for people: dollars are dollars again."""
    return word.replace("$$", "$")


# Behind the `${` of a reference in a text for another shell: the outer shell fills it in, also where it stands in '…'.
OUTER = "\ue000"


def for_shell(word: str) -> str:
    """Return the text that another shell gets for a word; references in it stay those of the outer shell."""
    return _PART.sub(lambda match: f"${{{OUTER}{match[0][2:]}" if match[1] else match[0].replace("$$", "$"), word)


def is_constant(word: str) -> bool:
    """Say whether a word depends on no variable."""
    return "$" not in word.replace("$$", "")


def with_defaults(word: str) -> str:
    """Return the text of a word, with the defaults of its references. Raises Unknown for one without a default."""

    def text(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[2] in ("-", ":-"):
            return match[3]
        raise Unknown(f"`{match[1] or word}` is not known here" + (f": put its value in for `{for_people(word)}`"))

    return _PART.sub(text, word)


def required_variables(word: str) -> list[str]:
    """Return the variables that a word has no default for."""
    return [match[1] for match in _PART.finditer(word) if match[1] and match[2] not in ("-", ":-", "+", ":+")]


def default_used(word: str) -> bool:
    """Say whether `settled` has to take a default."""
    return not is_constant(word)
