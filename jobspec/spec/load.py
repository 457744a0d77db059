"""From a file to a Spec, in phases: read, parse, interpolate, validate, check. All there is to tell is told at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.diagnostics import Diagnostic, Span, has_errors, in_order
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.names import is_name
from jobctl.jobspec.spec.reading.env_files import dot_env, env_file_path, read_env_file
from jobctl.jobspec.spec.reading.interpolate import BadInterpolation, interpolate
from jobctl.jobspec.spec.reading.overrides import apply_override
from jobctl.jobspec.spec.reading.partial import Lost, draft
from jobctl.jobspec.spec.reading.problems import validate
from jobctl.jobspec.spec.reading.secret_references import check_secret_references
from jobctl.jobspec.spec.reading.source import BadSource, Source, YamlNode, folder_of, read_text
from jobctl.jobspec.spec.reading.variables import fill_in, pass_through
from jobctl.jobspec.spec.reading.yaml_reader import parse


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of a spec file: `spec` is None where there are errors.

    `draft` is for rules that are checked in spite of them (see draft.py). `directory` is the absolute folder of the
    file, to which its relative paths refer.
    """

    spec: Spec | None
    diagnostics: tuple[Diagnostic, ...]
    directory: Path
    source: Source
    draft: Spec | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """The name in a spec file, None where it cannot be told, and why not."""

    name: str | None
    diagnostics: tuple[Diagnostic, ...]
    source: Source


def load_spec(path: Path, *, environ: Mapping[str, str], overrides: Sequence[str] = ()) -> Loaded:
    """Load the spec in `path`; never raises for what is wrong with it.

    `environ` is interpolated, above `.env` beside the spec. `overrides` are `KEY=VALUE` (dotted keys, YAML values).
    """
    return load_text(path, None, environ=environ, overrides=overrides)


def load_text(path: Path, text: str | None, *, environ: Mapping[str, str], overrides: Sequence[str] = ()) -> Loaded:
    """Load a spec from `text` as if it were in `path` (None: from the file itself)."""
    directory = Path(os.path.abspath(folder_of(path)))
    file = str(path)
    given = text or ""
    try:
        given = text = read_text(path, file) if text is None else text
        root, found = parse(text, file)
        root = _mapping(root, file)
        _override(root, overrides)
    except BadSource as bad:
        return Loaded(None, in_order(bad.diagnostics), directory, Source(file, given, None, tuple(overrides)))
    source = Source(file, text, root, tuple(overrides))
    variables, more = dot_env(folder_of(path), environ)
    known = {**variables, **environ}
    found += check_secret_references(source)
    bad_references, lost = fill_in(source, known)
    data = root.data()
    found += [*more, *bad_references, *pass_through(data, source, known)]
    spec, problems, gone = validate(source, data, lost)
    found += problems
    return _with_env_files(_checked(spec, gone, found, directory, source), known)


def _override(root: YamlNode, overrides: Sequence[str]) -> None:
    wrong: list[Diagnostic] = []
    for number, override in enumerate(overrides, 1):
        try:
            apply_override(root, override, number)
        except BadSource as bad:
            wrong += bad.diagnostics
    if wrong:
        raise BadSource(*wrong)


def _checked(
    spec: Spec | None, gone: set[tuple[str | int, ...]], found: list[Diagnostic], directory: Path, source: Source
) -> Loaded:
    from jobctl.jobspec.spec.checks.rules import check_spec

    if spec is None:
        return Loaded(None, in_order(found, (source.file,)), directory, source)
    seen = draft(spec, gone)
    diagnostics = in_order([*found, *check_spec(seen, source, directory)], (source.file,))
    return Loaded(None if has_errors(diagnostics) else spec, diagnostics, directory, source, seen)


def _with_env_files(loaded: Loaded, environ: Mapping[str, str]) -> Loaded:
    """Return what was loaded with the variables of the spec's files, and with what is wrong in these, whatever else is.

    Later files win, and `env` above all. Variables with the name of a secret are left out: artefacts hold their values.
    """
    merged, found = dict[str, str](), list(loaded.diagnostics)
    for name in _env_files(loaded.draft):
        path = env_file_path(Path(loaded.source.file), name)
        if os.path.isfile(path):
            values, more = read_env_file(path, environ)
            merged.update(values)
            found += more
    spec = None if has_errors(found) else loaded.spec
    if spec is not None and merged:
        secrets = {secret.name for secret in spec.secrets}
        kept = {name: value for name, value in merged.items() if name not in secrets}
        spec = spec.model_copy(update={"env": {**kept, **spec.env}})
    return replace(loaded, spec=spec, diagnostics=in_order(found, (loaded.source.file,)))


def _env_files(seen: Spec | None) -> tuple[str, ...]:
    """Return the names in `env_file`; none if they were lost."""
    with suppress(Lost):
        return seen.env_file if seen is not None else ()
    return ()


def read_name(path: Path) -> Named:
    """Return the name of the job in `path`, whatever else is wrong with the spec."""
    file = str(path)
    text = ""
    try:
        text = read_text(path, file)
        root = _mapping(parse(text, file)[0], file)
    except BadSource as bad:
        return Named(None, bad.diagnostics, Source(file, text, None))
    name = _literal(root) or _filled_in(root, path)
    if name is not None:
        return Named(name, (), Source(file, text, root))
    loaded = load_spec(path, environ=os.environ)
    if loaded.spec is not None:
        return Named(loaded.spec.name, (), loaded.source)
    return Named(None, tuple(d for d in loaded.diagnostics if d.severity == "error"), loaded.source)


def literal_name(path: Path) -> str | None:
    """Return the name that the spec itself gives, None where a variable gives it, or nobody can read it."""
    try:
        return _literal(_mapping(parse(read_text(path, str(path)), str(path))[0], str(path)))
    except BadSource:
        return None


def _literal(root: YamlNode) -> str | None:
    entry = root.get("name")
    return entry[1].text if entry is not None and is_name(entry[1].text) else None


def _filled_in(root: YamlNode, path: Path) -> str | None:
    """Return the name that variables give, None where one of them is missing: other values may lack theirs."""
    entry = root.get("name")
    if entry is None or "$" not in entry[1].text:
        return None
    variables, _ = dot_env(folder_of(path), os.environ)
    missing: list[str] = []
    try:
        name = interpolate(entry[1].text, {**variables, **os.environ}, lambda variable, *_: missing.append(variable))
    except BadInterpolation:
        return None
    return name if is_name(name) and not missing else None


def _mapping(root: YamlNode | None, file: str) -> YamlNode:
    if root is None or (root.kind == "scalar" and not root.text):
        start = Span(file, 1, 1, 1, 1)
        hint = "`jobctl init` writes one to start from"
        raise BadSource(Diagnostic("error", "empty-spec", f"`{file}` is empty", start, hint))
    if root.kind != "mapping":
        message = "a spec is a mapping of keys to values"
        raise BadSource(Diagnostic("error", "wrong-type", message, root.span, "begin with `name: my-job`"))
    return root
