"""The user's code: which files it is, its identity, and sending it to hosts.

A version of the code is a folder of its own on a host, named by its hash, so what runs never sees half a copy, nor
another version than it was started with. Only files that a host does not have yet are sent.
"""

from __future__ import annotations

import base64
import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.deploy.transport import checked
from jobctl.jobspec.plan.types import Code, Plan
from jobctl.jobspec.render.write import LIST as RENDERED

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.site import Site

# What running a script changes by itself, and what never reaches a process.
_NEVER = (".git", "__pycache__", "*.pyc", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache")
IGNORE = ".dockerignore"


def code_hash(plan: Plan) -> str | None:
    """Return a hash of the code that `plan` sends (or, without `code`, of the script beside the spec).

    Names and contents count; times do not. None where there is nothing on this machine to watch.
    """
    if plan.code is not None:
        root = Path(plan.code.source)
        unwatched = {root / name for name in plan.code.unwatched}
        return _hash(root, (path for path in code_files(plan, plan.code) if path not in unwatched))
    if plan.script is not None and os.path.isfile(plan.script):
        script = Path(plan.script)
        return _hash(script.parent, [script])
    return None


def code_files(plan: Plan, code: Code) -> list[Path]:
    """Return the files (and links) of the code, sorted: all below its source but what is excluded.

    Excluded are patterns of `.dockerignore`, those of `code.exclude` (without a slash they hold at any depth), and
    what the job or jobctl itself writes there: to look at a job must not change it.
    """
    from docker.utils.build import PatternMatcher

    root = Path(code.source)
    patterns = [*_NEVER, *code.exclude, *plan.outputs]
    everywhere = [f"**/{pattern.strip('/')}" for pattern in patterns if "/" not in pattern.strip("/")]
    where = plan.checkpoint.dir if plan.checkpoint else None
    own = [f"{plan.job}-pull", f"{plan.job}-report.html"]
    own += [os.path.relpath(where, root)] if where and Path(where).is_relative_to(root) else []
    matcher = PatternMatcher([pattern.strip("/") for pattern in patterns] + everywhere + own + _ignored(root))
    found = [root / name for name in matcher.walk(str(root))]
    rendered = {path.parent for path in found if path.name == RENDERED} - {root}
    files = (path for path in found if path.is_symlink() or path.is_file())
    return sorted(path for path in files if rendered.isdisjoint(path.parents))


def _ignored(root: Path) -> list[str]:
    """Return the patterns in the code's .dockerignore."""
    try:
        lines = (root / IGNORE).read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _hash(root: Path, files: Iterable[Path]) -> str:
    digest = sha256()
    for path in files:
        content = _content(path)
        if content is None:
            continue  # a file that goes away, or that nobody may read, is not code that a process runs
        name = path.relative_to(root).as_posix().encode(errors="surrogateescape")
        digest.update(b"%d %s\0%d\0" % (len(name), name, len(content)))
        digest.update(content)
    return digest.hexdigest()[:16]


def _content(path: Path) -> bytes | None:
    try:
        return os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


@dataclass(frozen=True)
class Package:
    """One version of the code, ready to be sent to any number of hosts."""

    code: Code
    files: tuple[Path, ...]

    @cached_property
    def digests(self) -> dict[bytes, str]:
        """The SHA-256 of each plain file, by its path relative to the source."""
        plain = {path: _content(path) for path in self.files if not path.is_symlink()}
        return {self._name(path): sha256(data).hexdigest() for path, data in plain.items() if data is not None}

    def _name(self, path: Path) -> bytes:
        return os.fsencode(path.relative_to(self.code.source))

    def send(self, site: Site) -> None:
        """Put this version beside those that the host has; what it has of them already is copied there, not sent."""
        top = str(site.work / "code")
        version = self.code.version or ""
        argv = ["sh", "-c", _ASK, "sh", top, version]
        answer = checked(site.transport, argv, f"look for code in {top}")
        if answer.startswith(b"here"):
            return
        base, _, listing = answer.partition(b"\n")
        there = _listing(listing) if base else {}
        same = sorted(name for name, digest in self.digests.items() if there.get(name) == digest)
        packed = self._pack(frozenset(same))
        kept = b"".join(name + b"\0" for name in same)
        folders = [f"./{path}" for path in self.code.outputs]
        sizes = [str(len(kept)), str(len(packed)), str(len(folders))]
        results = [f"./{path}" for path in self.code.results]
        argv = ["sh", "-c", _SEND, "sh", top, version, os.fsdecode(base), *sizes, *folders, *results]
        checked(site.transport, argv, f"write code into {top}", kept + packed)

    def compressed(self) -> bytes:
        """Return all of it as a compressed tar file: the same bytes for the same names and contents."""
        return gzip.compress(self._pack(frozenset(), timeless=True), mtime=0)

    def _pack(self, without: frozenset[bytes], *, timeless: bool = False) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in self.files:
                if self._name(path) not in without:
                    self._add(archive, path, timeless)
        return buffer.getvalue()

    def _add(self, archive: tarfile.TarFile, path: Path, timeless: bool) -> None:
        member = tarfile.TarInfo(path.relative_to(self.code.source).as_posix())
        data = _content(path)
        if data is None:
            return
        info = path.lstat()
        member.mtime = 0 if timeless else int(info.st_mtime)
        if path.is_symlink():
            member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.fsdecode(data), 0o777
            archive.addfile(member)
            return
        # Readable for whoever the container's user is; executable if it is here.
        member.mode = 0o755 if info.st_mode & stat.S_IXUSR else 0o644
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))


def pack_code(plan: Plan) -> Package | None:
    """Return the code that `plan` sends, None if it sends none."""
    return None if plan.code is None else Package(plan.code, tuple(code_files(plan, plan.code)))


def archive_of(plan: Plan) -> str | None:
    """Return the code that `plan` sends as manifests carry it, in base64; None if it sends none."""
    package = pack_code(plan)
    return None if package is None else base64.b64encode(package.compressed()).decode()


def _listing(text: bytes) -> dict[bytes, str]:
    """Return path to digest from what sha256sum printed; names that it escapes are left out, and so sent again."""
    found = {}
    for line in text.splitlines():
        digest, _, name = line.partition(b"  ./")
        if len(digest) == 64 and name:
            found[name] = digest.decode()
    return found


# Answers `here` if version $2 is below $1; else the name of the newest other one and the digests of its files.
_ASK = """\
cd -- "$1" 2>/dev/null || exit 0
if [ -d "$2" ]; then touch -- "$2"; echo here; exit 0; fi
base=$(ls -t | head -n 1); [ -n "$base" ] && cd -- "$base" || exit 0
printf '%s\\n' "$base"
find . -type f -exec sha256sum -- {} + 2>/dev/null; :
"""

# Makes version $2 below $1 from files of version $3, named by the first $4 bytes of stdin, and the tar of $5 bytes
# behind them. It has its name when it is whole. Older versions than $3 are removed: nothing runs from them any more.
# Of the other arguments $6 are folders to make, the rest files that version $3 may have written, and this one keeps.
_SEND = """\
set -eu; umask 022
top=$1 version=$2 base=$3 names=$4 size=$5 folders=$6; shift 6
mkdir -p -- "$top"; cd -- "$top"
new=$(mktemp -d "$top/../.code.XXXXXX"); trap 'rm -rf -- "$new"' EXIT
mkdir "$new/files"
head -c "$names" > "$new/names"; cat > "$new/tar"
[ "$(wc -c < "$new/tar")" -eq "$size" ] || { echo "the connection broke off" >&2; exit 1; }
[ "$names" -eq 0 ] || tar -C "$base" --null --no-recursion -T "$new/names" -cf - | tar -xpf - -C "$new/files"
tar -xpf "$new/tar" -C "$new/files"
while [ "$folders" -gt 0 ]; do mkdir -p -- "$new/files/$1"; shift; folders=$((folders - 1)); done
: > "$new/results"
for path do
  printf '%s\\0' "$path" >> "$new/results"
  if [ -n "$base" ] && [ -f "$base/$path" ] && mkdir -p -- "$(dirname -- "$new/files/$path")"; then
    cp -p -- "$base/$path" "$new/files/$path" || :
  fi
done
mv -f -- "$new/results" "$top/../.results"
touch "$new/files"; mv -T -- "$new/files" "$top/$version"
for old in *; do
  case $old in "$version"|"$base") ;; *) rm -rf -- "$old" 2>/dev/null || : ;; esac
done
"""
