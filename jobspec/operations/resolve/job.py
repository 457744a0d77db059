"""From what a caller names, a spec file or a known job, to a spec that is valid for its target and hosts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import InvalidHosts, InvalidSpec, Refused
from jobctl.jobspec.operations.targets.choose import choose_target, may_take_hosts, names_cluster, where_recorded
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.targets import TARGETS

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.store.code import CodeSelection
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.load import Loaded
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.targets import TargetName

DEFAULT_SPEC = "job.yaml"
STDIN = "-"  # in the place of a spec file
_NAME_HOSTS = "name its hosts: `--hosts hosts.txt`"


def is_spec_file(job: str) -> bool:
    """Say whether JOB means a file: names of jobs have neither dots nor slashes."""
    return "/" in job or "." in job or (os.path.exists(job) and not os.path.isdir(job))


@dataclass(frozen=True, slots=True)
class Compiled:
    """A spec that is valid for a target, with the hosts it is for; `others` are in the hosts file, too."""

    spec: Spec
    directory: Path
    path: Path
    target: TargetName
    hosts: tuple[Host, ...]
    hosts_path: Path | None
    on: str | None
    exclude: str | None
    warnings: tuple[Diagnostic, ...]
    overrides: tuple[str, ...] = ()
    others: tuple[Host, ...] = ()


@dataclass(frozen=True, slots=True)
class Reached:
    """Options that say how a running job is reached: its hosts, or its cluster. An option that is left out is as the job was started with."""

    hosts: Path | None = None
    ssh_config: Path | None = None
    accept_new: bool = False
    context: str | None = None
    namespace: str | None = None


AS_STARTED = Reached()


def spec_path(job: str | None) -> Path:
    """Return the spec file that JOB means; for the name of a known job, the one it was started with."""
    if job is None:
        return Path(DEFAULT_SPEC)
    if job == STDIN:
        return Path("/dev/stdin")
    if is_spec_file(job):
        return Path(job)
    spec = (job_of_name(job).job_record() or {}).get("spec")
    if spec is None and os.path.isdir(job):
        return Path(job)  # the loader says what is wrong with it
    checked_name(job)
    if spec is None:
        raise Refused(
            f"no job `{job}` is known here, and no file of that name",
            "name a spec file, or see `jobctl list`",
        )
    from jobctl.jobspec.spec.reading.source import is_descriptor

    if is_descriptor(Path(spec)):
        message = f"job `{job}` was started from {spec}, which gave its spec once"
        raise Refused(message, "name a spec file, or give it in the same way again")
    return Path(spec)


def checked_name(text: str) -> str:
    """Return the name of a job that a user wrote. Raises Refused if no job can have it."""
    from jobctl.jobspec.spec.names import is_name

    if not is_name(text):
        raise Refused(f"`{text}` names no job", "JOB is a spec file, or the name of a job as `jobctl list` shows it")
    return text


def job_of_name(name: str) -> JobDir:
    """Return the directory of the job `name`."""
    from jobctl.jobspec.deploy.store.jobdir import job_dir, state_dir

    return job_dir(state_dir(os.environ), name)


def load(job: str | None, overrides: Sequence[str] | None) -> tuple[Path, Loaded]:
    """Load the spec that JOB means, whatever is wrong with it."""
    from jobctl.jobspec.spec.load import load_spec

    path = spec_path(job)
    return path, load_spec(path, environ=os.environ, overrides=overrides or ())


@dataclass(frozen=True, slots=True)
class Where:
    """Where a job is to run, as the options say: `--target`, `--hosts` and the choice of them, or a cluster.

    `hosts_from` says which default the hosts file is, None where an option or the job itself names it; `hosts_gone` is the
    hosts file that the job was started with, if nobody names another and it is there no more.
    """

    target: TargetName | None = None
    hosts: Path | None = None
    on: str | None = None
    exclude: str | None = None
    context: str | None = None
    namespace: str | None = None
    hosts_from: str | None = None
    hosts_gone: Path | None = None


def as_started(job: str | None, where: Where, *, needs_hosts: bool = True) -> Where:
    """Return `where`, filled in for a job that is up: its hosts and target are what it was started with.

    Options count more: a hosts file alone leaves the job its target. For a job that is not known here, the user's own default
    counts. Raises Refused if its hosts file is gone, unless the command does not need hosts.
    """
    if not may_take_hosts(where.target) or (where.hosts is not None and where.target is not None):
        return where
    name = job if job is not None and not is_spec_file(job) else _name_in(spec_path(job))
    about = (job_of_name(name).job_record() or {}) if name else {}
    if not about:
        return with_defaults(job, where)
    if about.get("target"):
        where = where_recorded(where, about["target"])
    if where.hosts is not None or not about.get("hosts") or (where.target is None and names_cluster(where)):
        return where
    from jobctl.jobspec.spec.reading.source import is_descriptor

    target, gone = where.target or about["target"], Path(about["hosts"])
    if is_descriptor(gone) or not os.path.isfile(gone):  # what came by a descriptor is something else by now
        if not needs_hosts:
            return replace(where, target=target, hosts_gone=gone)
        raise Refused(f"job `{name}` was started with {gone}, which is gone", _NAME_HOSTS)
    on, exclude = where.on or about.get("on"), where.exclude or about.get("exclude")
    return replace(where, target=target, hosts=Path(about["hosts"]), on=on, exclude=exclude)


def with_defaults(job: str | None, where: Where) -> Where:
    """Return `where` with the user's default hosts file, unless options say where the job runs, or it is known here."""
    from jobctl.jobspec.operations.resolve.settings import default_hosts

    if where.hosts is not None or not may_take_hosts(where.target) or names_cluster(where):
        return where
    default = default_hosts()
    if default.value is None:
        return where
    name = job if job is not None and not is_spec_file(job) else _name_in(spec_path(job))
    if name and job_of_name(name).job_record() is not None:
        return where
    return replace(where, hosts=default.value, hosts_from=default.place)


def _name_in(path: Path) -> str | None:
    from jobctl.jobspec.spec.load import read_name

    return read_name(path).name


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at spec, hosts and target together found; `compiled` is None where there are errors.

    `code` is what the target's hosts would get of it.
    """

    compiled: Compiled | None
    diagnostics: tuple[Diagnostic, ...]
    files: tuple[Path, ...]
    loaded: Loaded
    code: CodeSelection | None


def check(job: str | None, overrides: Sequence[str] | None, where: Where) -> Checked:
    """Check spec, hosts and target together."""
    from jobctl.jobspec.frameworks.reserved_env import reserved_env_warnings
    from jobctl.jobspec.operations.resolve.code import large_code, selection
    from jobctl.jobspec.operations.resolve.compose_options import options_not_in_compose
    from jobctl.jobspec.spec.checks.targets import check_target
    from jobctl.jobspec.spec.diagnostics import has_errors, in_order

    chosen = choose_target(where)
    if where.hosts is not None and str(where.hosts) == str(spec_path(job)) == "/dev/stdin":
        raise Refused("standard input cannot be both the spec and the hosts file", "name a file for one of them")
    path, loaded = load(job, overrides)
    files = (path,) if where.hosts is None else (path, where.hosts)
    every, known, wrong = ((), (), _hosts_gone(where)) if where.hosts is None else _hosts(where.hosts, where)
    used, misplaced = _where_data_is(loaded, every, known)
    found = [
        *loaded.diagnostics,
        *wrong,
        *misplaced,
        *check_target(loaded, chosen, used, where.hosts or where.hosts_gone),
        *reserved_env_warnings(loaded),
    ]
    if not has_errors(found):
        found += options_not_in_compose(loaded, chosen)
    code = selection(loaded, path, where.hosts) if TARGETS[chosen].sends_code else None
    found += large_code(loaded, code)
    diagnostics = in_order(found, [str(file) for file in files])
    if loaded.spec is None or has_errors(diagnostics):
        return Checked(None, diagnostics, files, loaded, code)
    names = {host.name for host in used}  # to compare each host with each takes minutes for 10,000 of them
    unused = tuple(host for host in every if host.name not in names)
    what, options = (loaded.spec, loaded.directory, path, chosen, used), (where.hosts, where.on, where.exclude)
    compiled = Compiled(*what, *options, diagnostics, tuple(overrides or ()), unused)
    return Checked(compiled, diagnostics, files, loaded, code)


def _hosts_gone(where: Where) -> tuple[Diagnostic, ...]:
    from jobctl.jobspec.spec.diagnostics import Diagnostic, Span

    if where.hosts_gone is None:
        return ()
    path = str(where.hosts_gone)
    message = f"the job was started with {path}, which is gone: nothing was compared with its hosts"
    return (Diagnostic("warning", "hosts-file-gone", message, Span(path, 1, 1, 1, 1), _NAME_HOSTS),)


def _where_data_is(
    loaded: Loaded, every: tuple[Host, ...], chosen: tuple[Host, ...]
) -> tuple[tuple[Host, ...], list[Diagnostic]]:
    """Return the chosen hosts that get all data of a job, and what is wrong with those that it names."""
    from jobctl.jobspec.spec.checks.data import check_data_hosts, hosts_with_data
    from jobctl.jobspec.spec.reading.partial import findings_of

    spec = loaded.draft
    if spec is None or not every:
        return chosen, []
    found = findings_of(lambda: check_data_hosts(spec, loaded.source, every, chosen))
    if found or loaded.spec is None:
        return chosen, found
    with_data = {host.name for host in hosts_with_data(loaded.spec, every)}
    return tuple(host for host in chosen if host.name in with_data), []


def _hosts(path: Path, where: Where) -> tuple[tuple[Host, ...], tuple[Host, ...], tuple[Diagnostic, ...]]:
    """Return all hosts of a file, the chosen ones, and what is wrong with it; then it has none: their number is not known."""
    from jobctl.jobspec.spec.diagnostics import has_errors
    from jobctl.jobspec.spec.hosts import UnknownHost, choose, load_hosts

    lines = load_hosts(path)
    if has_errors(lines.diagnostics):
        return (), (), lines.diagnostics
    try:
        chosen = choose(lines.hosts, where.on, where.exclude)
    except UnknownHost as unknown:
        raise Refused(f"{path}: {unknown}", unknown.hint) from unknown
    if not chosen:
        raise Refused(f"{path}: `--on` and `--exclude` leave no host", "choose others")
    return lines.hosts, chosen, lines.diagnostics


def known_hosts(where: Where) -> tuple[Host, ...]:
    """Return the chosen hosts of a hosts file. Raises Refused if something is wrong with it."""
    from jobctl.jobspec.spec.diagnostics import has_errors
    from jobctl.jobspec.spec.reading.source import Source

    if where.hosts is None:
        return ()
    _, found, diagnostics = _hosts(where.hosts, where)
    if has_errors(diagnostics):
        raise InvalidHosts(diagnostics, Source(str(where.hosts), "", None))
    return found


def compile_job(job: str | None, overrides: Sequence[str] | None, where: Where, reporter: Reporter) -> Compiled:
    """Return the compiled job, telling of warnings, of hosts that are not used, and of code that is not sent.

    Raises InvalidSpec.
    """
    say_default_hosts(where, reporter)
    checked = check(job, overrides, where)
    compiled = compiled_of(checked)
    reporter.diagnostics(checked.diagnostics, checked.loaded.source)
    say_unused_hosts(checked, where, reporter)
    if TARGETS[compiled.target].sends_code:
        _say_left_out(checked, compiled, reporter)
    return compiled


def refuse_missing_files(compiled: Compiled) -> None:
    """Raise Refused if the folder of the code is not there, or a file of `env_file`: nothing is started without them."""
    from jobctl.jobspec.spec.reading.env_files import missing_env_file

    refuse_missing_code(compiled)
    for name in compiled.spec.env_file:
        why = missing_env_file(compiled.directory, name)
        if why is not None:
            hint = "make it there, relative to the spec, or take it out of `env_file`"
            raise Refused(f"`env_file` of {compiled.path}: {why}: nothing was started", hint)


def refuse_missing_code(compiled: Compiled) -> None:
    """Raise Refused if the folder of the code is not there: it would be an empty version of the code."""
    code = compiled.spec.code
    if code is not None and not os.path.isdir(compiled.directory / code.source):
        message = f"`code` of {compiled.path}: there is no directory `{code.source}`: nothing was changed"
        raise Refused(message, "it is relative to the spec; is its file system mounted?")


def compiled_of(checked: Checked) -> Compiled:
    """Return the compiled job. Raises InvalidSpec if something is wrong with its spec or hosts."""
    if checked.compiled is None:
        raise InvalidSpec(checked.diagnostics, checked.loaded.source)
    return checked.compiled


def _say_left_out(checked: Checked, compiled: Compiled, reporter: Reporter) -> None:
    """Tell what of the folders of code and build is not sent, where anything is."""
    from jobctl.jobspec.operations.resolve.build import say_not_built
    from jobctl.jobspec.operations.resolve.code import say_left_out

    if checked.code is not None:
        say_left_out(checked.code.left_out, reporter)
    say_not_built(compiled, reporter)


def say_default_hosts(where: Where, reporter: Reporter) -> None:
    """Tell which hosts file is used where the user's own default names it."""
    if where.hosts_from is not None:
        reporter.say(f"hosts: {where.hosts} (default, from {where.hosts_from}; `--target local` is this machine)")


def say_unused_hosts(checked: Checked, where: Where, reporter: Reporter) -> None:
    """Tell that the target is this machine although there is a hosts file beside the spec, if nobody has chosen so."""
    from jobctl.jobspec.spec.reading.source import folder_of

    unused = folder_of(checked.files[0]) / "hosts.txt"
    if where.target is None and where.hosts is None and not names_cluster(where) and os.path.isfile(unused):
        option = f"--hosts {shlex.quote(str(unused))}"
        reporter.say(f"target local: this machine ({unused} is not used; {option} uses it)")
