"""The user's code: which files it is, what is left out of it and why, and its identity.

It leaves out files that would tell a secret to readers of the code on a host, and files that are not code: the spec, hosts
files, and what jobctl wrote there. `code.include` takes files back in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from hashlib import sha256
from io import FileIO
from pathlib import Path
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from jobctl.jobspec.deploy.store.files import told_of
from jobctl.jobspec.deploy.store.ignore import Patterns, at_any_depth
from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.write import LIST as RENDERED
from jobctl.jobspec.spec.targets import traits_of

IGNORE = ".dockerignore"
PULLED = ".jobctl-pull"  # names what `pull` put beside it
GENERATOR = b'<meta name="generator" content="jobctl">'  # stands at the begin of report pages
LARGE = 200_000_000  # bytes of code above which `validate` and `up` warn
_WHOLE = 1 << 20  # bytes up to which a file is read at once; a key and a report page are no larger

# What running a script, an editor or jobctl itself changes, and what never reaches a process.
NEVER = (
    *(".git", "__pycache__", "*.pyc", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints"),
    *(".DS_Store", "*.swp", "*.swo", "*~", ".#*", ".jobctl-*", ".jobctl"),
)
# What holds credentials, wherever it lies.
_PRIVATE = {
    ".env*": "an env file",
    **dict.fromkeys((".netrc", "_netrc", ".pgpass", ".git-credentials", ".pypirc", ".npmrc"), "credentials"),
    **dict.fromkeys((".ssh", ".aws", ".azure", ".gnupg", ".kube", ".config/gcloud"), "credentials"),
    **dict.fromkeys((".docker/config.json", ".huggingface/token"), "credentials"),
    # Where a key in a form that nobody knows here has the name that SSH gives it. Others are known by what they hold: a
    # `.pem` may well be a certificate.
    **dict.fromkeys(("*.p12", "*.pfx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"), "a private key"),
    **dict.fromkeys(("id_ecdsa_sk", "id_ed25519_sk"), "a private key"),
}
_PRIVATE_NAMES = [(Patterns([name, f"**/{name}"]), why) for name, why in _PRIVATE.items()]
_ANY_PRIVATE = Patterns(pattern for name in _PRIVATE for pattern in (name, f"**/{name}"))
# A key as a file of its own begins a line; that of a cloud's service account is a value in JSON.
_KEY = re.compile(
    rb"^[ \t]*(?:-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d)"
    rb"|\"private_key\"\s*:\s*\"-----BEGIN [A-Z0-9 ]*PRIVATE KEY",
    re.MULTILINE,
)
# What tells people something, and not a process: it is sent, and a change of it alone begins nothing. Only at the top of
# the code: deeper, and as plain text, files of these names may well be data.
_NOTES = re.compile(
    r"(readme|licen[cs]e)(\.(md|rst|txt))?|(changelog|contributing)(\.(md|rst))?|(authors|todo|notes?)\.(md|rst)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class File:
    """A file (or link) of the code; `name` is relative to the code's source, with `/`."""

    path: Path
    name: str
    info: os.stat_result = field(compare=False)
    # The digest of its content, once that was read: what is sent is compared with it, however many files there are.
    digests: list[str | None] = field(default_factory=list, compare=False, repr=False)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link, which is sent as one."""
        return S_ISLNK(self.info.st_mode)

    @property
    def mode(self) -> int:
        """Its permission bits."""
        return S_IMODE(self.info.st_mode) & 0o777

    @property
    def kind(self) -> int:
        """What of its mode makes another version of the code, as a mode: see `kind_of`."""
        return 0o777 if self.is_link else kind_of(self.mode)

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return 0 if self.is_link else self.info.st_size

    @property
    def is_note(self) -> bool:
        """Whether it tells people something, and not a process."""
        return _NOTES.fullmatch(self.name) is not None


def kind_of(mode: int) -> int:
    """Return 0600, 0700, 0644 or 0755: whether a file is private, and whether its owner executes it.

    The other bits come from the umask of the user who checked the code out, and from hosts that share it with a container.
    """
    executable = bool(mode & 0o100)
    if mode & 0o077:
        return 0o755 if executable else 0o644
    return 0o700 if executable else 0o600


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file or folder (with a slash at its end) that is not part of the code, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class CodeSelection:
    """What the code is, sorted by name, and what is left out of it beside what the user excludes."""

    files: tuple[File, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def size(self) -> int:
        """How many bytes it is."""
        return sum(file.size for file in self.files)


class Listings:
    """Which files the versions of each folder were made of: these are sent under that name, whatever has changed since."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str | None], tuple[File, ...]] = {}

    def note(self, folder: str, version: str, files: tuple[File, ...]) -> None:
        """Take note of a version that was just made."""
        self._known[folder, version] = files

    def files(self, folder: str, version: str | None) -> tuple[File, ...] | None:
        """Return the files of a version, None if it is not one that this process has made."""
        return self._known.get((folder, version))


_LISTINGS = Listings()


def code_hash(plan: Plan) -> str | None:
    """Return what identifies the code of `plan` (or, without `code`, the script beside the spec).

    Names, contents and kinds of files (`kind_of`) count; times do not. On target `local`, where nothing is sent, a large file is not read:
    it is another if its size or time is. None where there is nothing on this machine to watch.
    """
    traits = traits_of(plan.target)
    if plan.code is not None:
        files = code_of(plan, plan.code).files
        notes = not traits.is_stream  # there they are part of an object
        version = hash_of((file for file in files if not (notes and file.is_note)), read=traits.sends_code)
        _LISTINGS.note(plan.code.source, version, files)
        return version
    if plan.script is not None and os.path.isfile(plan.script):
        script = Path(plan.script)
        return hash_of([File(script, script.name, script.stat())], read=traits.sends_code)
    return None


def files_to_send(plan: Plan, code: Code) -> tuple[File, ...]:
    """Return the files of the version that a plan names, as they were listed for it."""
    listed = _LISTINGS.files(code.source, code.version)
    return code_of(plan, code).files if listed is None else listed


def code_of(plan: Plan, code: Code) -> CodeSelection:
    """Return what the code of `plan` is."""
    return select(code, plan.job, plan.outputs, plan.checkpoint.dir if plan.checkpoint else None)


def select(code: Code, job: str, outputs: Sequence[str], checkpoint: str | None) -> CodeSelection:
    """Return the files of the code: all below its source but what is excluded, private, or no code.

    Excluded are patterns of `.dockerignore`, those of `code.exclude` (`at_any_depth`), and what the job or jobctl itself
    writes there: to look at a job must not change it.
    """
    root = Path(code.source)
    own = [*written_for(job), *(_places_below(root, checkpoint) if checkpoint else ())]
    excluded = [*at_any_depth([*code.exclude, *NEVER]), *_outputs(outputs), *own, *ignored(root / IGNORE), f"!{IGNORE}"]
    included = at_any_depth(code.include)
    excluded += [f"!{pattern}" for pattern in included]
    return selected(root, Patterns(excluded), Patterns(included), dict(code.withheld))


def _outputs(outputs: Sequence[str]) -> Iterator[str]:
    """Yield what outputs leave out of the code: the path that each names; a pattern, which keeps no output, at any depth."""
    for path in outputs:
        yield from at_any_depth([path]) if "*" in path or "?" in path else [path]


def _places_below(root: Path, path: str) -> Iterator[str]:
    """Yield what a path is called below `root`, whatever links lead to either of them; nothing if it is elsewhere."""
    for top in {root, Path(os.path.realpath(root))}:
        for place in {path, os.path.realpath(path)}:
            if Path(place).is_relative_to(top):
                yield os.path.relpath(place, top)


def written_for(job: str) -> list[str]:
    """Return the names of what jobctl writes for a job where the user works."""
    return [f"{job}-pull", f"{job}-report.html"]


def selected(root: Path, excluded: Patterns, included: Patterns, withheld: dict[str, str]) -> CodeSelection:
    """Return the files below `root` that are not `excluded`; what is `withheld`, private or no code, only if `included`."""
    walk = _Walk(root, excluded, included, {os.path.realpath(path): why for path, why in withheld.items()} | withheld)
    files = sorted(walk.files(), key=lambda file: file.name.split("/"))
    return CodeSelection(tuple(files), tuple(sorted(walk.left_out, key=lambda one: one.name)))


class _Walk:
    """One walk through the code's folder."""

    def __init__(self, root: Path, excluded: Patterns, included: Patterns, withheld: dict[str, str]) -> None:
        self.root, self.excluded, self.included, self.withheld = root, excluded, included, withheld
        self.real = os.path.realpath(root)
        self.rendered = {line.partition("  ")[2] for line in _lines(root / RENDERED)}
        self.left_out: list[LeftOut] = []

    def files(self, folder: str = "") -> Iterator[File]:
        """Yield the files of the code in `folder` and below."""
        entries = {entry.name: entry for entry in _entries(self.root / folder)}
        if folder and RENDERED in entries:
            return
        pulled = _lines(self.root / folder / PULLED) if PULLED in entries else set()
        for name in sorted(entries):
            path = f"{folder}{name}"
            try:
                info = entries[name].stat(follow_symlinks=False)
            except OSError:
                continue  # it has just gone
            if name in pulled or path in self.rendered:
                continue
            if S_ISDIR(info.st_mode):
                if self._enters(path):
                    yield from self.files(f"{path}/")
            elif not self.excluded.match(path):
                yield from self._file(File(self.root / path, path, info))

    def _enters(self, folder: str) -> bool:
        if self.excluded.match(folder):
            return self.excluded.takes_back_below(folder)
        why = self._private(folder)
        if why is not None:
            self.left_out.append(LeftOut(f"{folder}/", why))
        return why is None

    def _file(self, file: File) -> Iterator[File]:
        if not (file.is_link or S_ISREG(file.info.st_mode)):
            return
        if not self.included.match(file.name):
            why = self._private(file.name) or (None if file.is_link else _nature(file))
            if why is not None:
                self.left_out.append(LeftOut(file.name, why))
                return
        yield file

    def _private(self, name: str) -> str | None:
        """Say why a path is not sent whatever it holds, None if nothing speaks against it."""
        named = self.withheld.get(f"{self.root}/{name}") or self.withheld.get(f"{self.real}/{name}")
        if named is not None:
            return named
        if not _ANY_PRIVATE.match(name) or self.included.match(name) or self.included.may_match_below(name):
            return None
        return next(why for pattern, why in _PRIVATE_NAMES if pattern.match(name))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, nothing where nobody may look."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _lines(path: Path) -> set[str]:
    try:
        return set(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return set()


def ignored(path: Path) -> list[str]:
    """Return the patterns in a file like .dockerignore, none if there is no such file.

    As for Docker, a byte order mark, with which some editors begin a file, is no part of the first one.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


# Contents.


def note_pulled(folder: Path, before: set[str]) -> None:
    """Note what `pull` has put into `folder`, which held `before`: none of it is code."""
    now = {entry.name for entry in _entries(folder)}
    ours = sorted((now - before) | (_lines(folder / PULLED) & now) - {PULLED})
    with told_of(folder / PULLED):
        (folder / PULLED).write_text("".join(f"{name}\n" for name in ours), encoding="utf-8")


def names_in(folder: Path) -> set[str]:
    """Return the names of what is in `folder`."""
    return {entry.name for entry in _entries(folder)}


def hash_of(files: Iterable[File], *, read: bool = True) -> str:
    """Return what identifies files by name, kind and content. Without `read`, large ones by size and time."""
    digest = sha256()
    for file in files:
        content = digest_of(file, read=read)
        if content is None:
            continue  # a file that goes away, or that nobody may read, is not code that a process runs
        name = os.fsencode(file.name)
        digest.update(b"%d %s\0%o %s\0" % (len(name), name, file.kind, content.encode()))
    return digest.hexdigest()[:16]


def digest_of(file: File, *, read: bool = True) -> str | None:
    """Return the SHA-256 of a file's content, or of where a link leads; None if it cannot be read.

    Without `read`, that of a large file is made from its size and time.
    """
    info = file.info
    if file.is_link:
        try:
            return sha256(os.fsencode(os.readlink(file.path))).hexdigest()
        except OSError:
            return None
    if info.st_size > _WHOLE and not read:
        return f"{info.st_size} {info.st_mtime_ns}"
    if not file.digests:
        file.digests.append(
            _looked_at(str(file.path), info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)[0]
        )
    return file.digests[0]


def _nature(file: File) -> str | None:
    """Say what a file is whose content shows that it is not code, None for what may be code."""
    info = file.info
    if info.st_size > _WHOLE:
        return None
    return _looked_at(str(file.path), info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)[1]


def _digest_of_first(opened: FileIO, size: int) -> str:
    """Return the SHA-256 of as many bytes as a file had when it was listed, and as are sent: a log may have grown since."""
    digest = sha256()
    while size and (piece := opened.read(min(size, _WHOLE))):
        digest.update(piece)
        size -= len(piece)
    return digest.hexdigest()


@lru_cache(maxsize=100_000)
def _looked_at(path: str, inode: int, size: int, mtime: int, ctime: int) -> tuple[str | None, str | None]:
    """Return the digest and the nature of a plain file; it is read once by a command, however often it plans."""
    try:
        with open(path, "rb", buffering=0) as opened:
            if size > _WHOLE:
                return _digest_of_first(opened, size), None
            content = opened.read(size)  # a file of /proc has no size, and its end may never come
    except OSError:
        return None, None
    key = "a private key" if _KEY.search(content) else None
    page = "a page that `jobctl report` wrote" if GENERATOR in content[:1000] else None
    return sha256(content).hexdigest(), key or page
