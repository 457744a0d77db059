"""Names: of a job, made from whatever names one today, and of variables that should stay secret."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jobctl.jobspec.spec.sensitive import KNOWN_TOKEN

# Variables of the machine that a command was typed on; an image has its own.
MACHINE = frozenset(
    ["PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "HOME", "USER", "SHELL", "PWD", "OLDPWD", "LOGNAME", "HOSTNAME"]
)

# Names that say nothing: Paddle's own default, and what its documents write.
_EMPTY = {"", "default", "none"}

_SECRET = re.compile(
    r"(^|_)(PASS|SECRET|SECRETS|KEY|CREDENTIAL|CREDENTIALS|AUTH|PAT|PWD_HASH)(_|$)"
    r"|(PASSWORD|PASSWD|PASSPHRASE|TOKEN|(API|SECRET|ACCESS|PRIVATE)KEY)(_|$)|^(MYSQL_PWD|SSHPASS)$",
    re.IGNORECASE,
)
# `SSH_AUTH_SOCK`, `TOKENIZERS_PARALLELISM` and the like hold no secret.
_OPEN = re.compile(r"(^|_)(SOCK|FILE|PATH|DIR|ID|PUBLIC|TYPE|NAME|SIZE|LEN|LENGTH|MAX|NUM)(_|$)", re.IGNORECASE)
# A password in a URL, or a token in place of a user.
_IN_URL = re.compile(r"://([^/@\s:]*:[^/@\s]+|[\w-]{20,})@")
_IN_TEXT = re.compile(
    r"passw|passphrase|secret|credential|bearer|authorization|api[-_]?key|access[-_]?key|private[-_]?key|login|[-_]token|token[=:]",
    re.IGNORECASE,
)


# `${DOCKER_ARGS}` and the like hold any number of words, and not an image, a script or a command.
_OPTIONS = re.compile(r"\$\{\w*(ARGS|ARGUMENTS|OPTS|OPTIONS|FLAGS|PARAMS)\}", re.IGNORECASE)
UNKNOWN_OPTIONS = "what it holds is not known here: add these options"


def are_options(words: Sequence[str]) -> bool:
    """Say whether `words` begin with a variable that nobody knows, and whose name says that it holds options."""
    return len(words) > 1 and _OPTIONS.fullmatch(words[0]) is not None


def job_name(*wishes: str | None) -> str:
    """Return the first of `wishes` that says something, made to fit: lower-case letters, digits and `-`, at most 40."""
    for wish in wishes:
        name = fitted(wish or "")
        if name not in _EMPTY:
            return name
    return "job"


def fitted(text: str) -> str:
    """Return `text` as a name for a job; empty if nothing of it can stay."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = words if words[:1].isalpha() or not words else f"job-{words}"
    return name[:40].rstrip("-")


def says_something(wish: str | None) -> bool:
    """Say whether a name is more than a default."""
    return fitted(wish or "") not in _EMPTY


def is_secret(name: str, value: str = "") -> bool:
    """Say whether the variable `name` looks as if its value should stay secret."""
    if _IN_URL.search(value) or KNOWN_TOKEN.search(value):
        return True
    return bool(_SECRET.search(name)) and not _OPEN.search(name)


def looks_secret(text: str) -> bool:
    """Say whether some text, such as a command, looks as if it held a secret."""
    return bool(_IN_TEXT.search(text) or _IN_URL.search(text) or KNOWN_TOKEN.search(text))
