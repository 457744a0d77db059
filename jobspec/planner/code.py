"""The code, the data, the script and the build of a job, as the spec says. Pure."""

from __future__ import annotations

import os.path
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jobctl.jobspec.plan import sent
from jobctl.jobspec.spec.data_place import place_of_data

if TYPE_CHECKING:
    from jobctl.jobspec.planner.context import Context
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.parts.notify import Notify


def code_of(spec: Spec, directory: str) -> sent.Code:
    """Return the code of a spec in `directory`, which has some."""
    assert spec.code is not None
    source = os.path.normpath(os.path.join(directory, spec.code.source))
    folders = tuple(path.rstrip("/") for path in spec.outputs if path.endswith("/") or not PurePosixPath(path).suffix)
    files = tuple(path for path in spec.outputs if path.rstrip("/") not in folders)
    withheld = _secret_files(spec, directory)
    return sent.Code(
        source, spec.code.target, spec.code.exclude, folders, files, include=spec.code.include, withheld=withheld
    )


def build_of(spec: Spec, directory: str, image: str = "") -> sent.Build | None:
    """Return what the image of a spec in `directory` is built from, None if it is not built."""
    if spec.build is None:
        return None
    context = os.path.normpath(os.path.join(directory, os.path.expanduser(spec.build.context)))
    return sent.Build(
        image,
        context,
        os.path.normpath(os.path.join(context, spec.build.dockerfile)),
        tuple(sorted(spec.build.args.items())),
        spec.build.target,
        spec.build.on,
        _secret_files(spec, directory),
    )


def tagged(name: str, version: str) -> str:
    """Return the name of an image with a version of its content in its tag."""
    repository, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    longest = 127 - len(version)  # a tag has at most 128 characters
    return f"{repository}{slash}{last}:{f'{tag[:longest]}-' if tag else ''}{version}"


def data_of(spec: Spec, directory: str) -> tuple[sent.Dataset, ...]:
    """Return the data of a spec in `directory`. Folders of one name in different places have different names on hosts."""
    found = []
    for one in spec.data:
        host, path = place_of_data(one.source)
        source = os.path.normpath(path if host else os.path.join(directory, os.path.expanduser(path)))
        data = sent.Dataset(source, one.target, "", host=host)
        place = sha256(os.fsencode(data.place)).hexdigest()[:8]
        word = re.sub(r"[^A-Za-z0-9_]+", "-", os.path.basename(source)).strip("-")[:40] or "data"
        found.append(replace(data, name=f"{word}-{place}"))
    return tuple(found)


def _secret_files(spec: Spec, directory: str) -> tuple[tuple[str, str], ...]:
    """Return the files that the spec takes secrets and variables from, each with what it is."""
    named = [(secret.file, f"secret `{secret.name}`") for secret in spec.secrets if secret.file is not None]
    named += [(name, "an env file") for name in spec.env_file]
    named += [(file, "a secret of `notify`") for one in spec.notify or () if (file := _notify_file(one)) is not None]
    return tuple((os.path.normpath(os.path.join(directory, os.path.expanduser(name))), why) for name, why in named)


def _notify_file(one: Notify) -> str | None:
    password = one.email.smtp.password if one.email and one.email.smtp else None
    source = one.webhook or password
    return source.file if source else None


def script_of(spec: Spec, context: Context) -> str | None:
    if spec.script is None or spec.code is not None or not context.script_here:
        return None
    return os.path.normpath(os.path.join(context.directory, spec.script))
