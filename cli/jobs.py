"""From what a user names, a spec file or a known job, to a loaded spec, a plan, and the deployer of the job."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobctl import console
from jobctl.console import Failed

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Deployer
    from jobctl.jobspec.deploy.model.inventory import Inventory, SshOptions
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.plan.types import Plan
    from jobctl.jobspec.planner.context import Context, Target
    from jobctl.jobspec.spec.diagnostics import Diagnostic
    from jobctl.jobspec.spec.hosts import Host
    from jobctl.jobspec.spec.load import Loaded
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.source import Source
    from jobctl.options import Target as Option

DEFAULT_SPEC = "job.yaml"


def is_spec_file(job: str) -> bool:
    """Say whether JOB means a file: names of jobs have neither dots nor slashes."""
    return "/" in job or "." in job or os.path.isfile(job)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A spec that is valid for a target, with the hosts it is for."""

    spec: Spec
    directory: Path
    path: Path
    target: Target
    hosts: tuple[Host, ...]
    hosts_path: Path | None
    on: str | None
    exclude: str | None
    warnings: tuple[Diagnostic, ...]
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reached:
    """Options that say how a running job is reached: its hosts, or its cluster. What is left out is as it was started with."""

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
    if is_spec_file(job):
        return Path(job)
    spec = (job_of_name(job).about() or {}).get("spec")
    if spec is None and os.path.isdir(job):
        return Path(job)  # the loader says what is wrong with it
    checked_name(job)
    if spec is None:
        raise Failed(
            f"no job `{job}` is known here, and no file of that name",
            2,
            "name a spec file, or see `jobctl list`",
        )
    return Path(spec)


def checked_name(text: str) -> str:
    """Return the name of a job that a user wrote. Ends with 2 if no job can have it."""
    from jobctl.jobspec.spec.names import is_name

    if not is_name(text):
        raise Failed(f"`{text}` names no job", 2, "JOB is a spec file, or the name of a job as `jobctl list` shows it")
    return text


def job_of_name(name: str) -> JobDir:
    """Return the directory of the job `name`."""
    from jobctl.jobspec.deploy.store.jobdir import job_dir, state_dir

    return job_dir(state_dir(console.environ()), name)


def load(job: str | None, overrides: Sequence[str] | None) -> tuple[Path, Loaded]:
    """Load the spec that JOB means, whatever is wrong with it."""
    from jobctl.jobspec.spec.load import load_spec

    path = spec_path(job)
    return path, load_spec(path, environ=console.environ(), overrides=overrides or ())


@dataclass(frozen=True, slots=True)
class Where:
    """Where a job is to run, as the options say: `--target`, `--hosts` and the choice of them, or a cluster."""

    target: Option | None = None
    hosts: Path | None = None
    on: str | None = None
    exclude: str | None = None
    context: str | None = None
    namespace: str | None = None


def in_cluster(where: Where | Reached) -> bool:
    """Say whether options name a cluster."""
    return where.context is not None or where.namespace is not None


def as_started(job: str | None, where: Where) -> Where:
    """Return `where`, filled in for a job that is up: its hosts and target are what it was started with."""
    if where.hosts is not None or (where.target is not None and where.target.value in ("local", "kubernetes")):
        return where
    name = job if job is not None and not is_spec_file(job) else _name_in(spec_path(job))
    about = (job_of_name(name).about() or {}) if name else {}
    from jobctl.options import Target as Option

    if about.get("target") == "kubernetes" and where.target is None:
        return replace(where, target=Option.kubernetes)
    if not about.get("hosts") or (where.target is None and in_cluster(where)):
        return where
    if not Path(about["hosts"]).is_file():
        raise Failed(
            f"job `{name}` was started with {about['hosts']}, which is gone", 2, "name its hosts: `--hosts hosts.txt`"
        )
    target = where.target or Option(about["target"])
    on, exclude = where.on or about.get("on"), where.exclude or about.get("exclude")
    return replace(where, target=target, hosts=Path(about["hosts"]), on=on, exclude=exclude)


def _name_in(path: Path) -> str | None:
    from jobctl.jobspec.spec.load import read_name

    return read_name(path).name


def choose_target(where: Where) -> Target:
    """Return the target: asked for, or `compose` with hosts and `local` without."""
    default: Target = "compose" if where.hosts else "kubernetes" if in_cluster(where) else "local"
    chosen: Target = where.target.value if where.target else default
    if in_cluster(where) and chosen != "kubernetes":
        raise Failed(f"`--context` and `--namespace` choose a cluster, and target `{chosen}` has none", 2)
    if where.hosts is None and (where.on or where.exclude):
        raise Failed("`--on` and `--exclude` choose from a hosts file", 2, "name it: `--hosts hosts.txt`")
    if chosen == "local" and where.hosts:
        raise Failed(
            "target `local` is this machine: it takes no hosts file",
            2,
            "leave out `--hosts` or `--target local`",
        )
    if chosen == "kubernetes" and where.hosts:
        raise Failed("target `kubernetes` takes no hosts file: the cluster chooses", 2, "leave out `--hosts`")
    return chosen


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at spec, hosts and target together found; `compiled` is None where there are errors."""

    compiled: Compiled | None
    diagnostics: tuple[Diagnostic, ...]
    files: tuple[Path, ...]
    loaded: Loaded


def check(job: str | None, overrides: Sequence[str] | None, where: Where) -> Checked:
    """Check spec, hosts and target together."""
    from jobctl.code import large_code
    from jobctl.jobspec.frameworks.reserved_env import reserved_env_warnings
    from jobctl.jobspec.spec.checks.targets import check_target
    from jobctl.jobspec.spec.diagnostics import has_errors, in_order

    chosen = choose_target(where)
    path, loaded = load(job, overrides)
    files = (path,) if where.hosts is None else (path, where.hosts)
    known, wrong = ((), ()) if where.hosts is None else _hosts(where.hosts, where)
    found = [
        *loaded.diagnostics,
        *wrong,
        *check_target(loaded, chosen, known, where.hosts),
        *reserved_env_warnings(loaded),
    ]
    if chosen != "local":
        found += large_code(loaded, path, where.hosts)
    diagnostics = in_order(found, [str(file) for file in files])
    if loaded.spec is None or has_errors(diagnostics):
        return Checked(None, diagnostics, files, loaded)
    compiled = Compiled(
        loaded.spec,
        loaded.directory,
        path,
        chosen,
        known,
        where.hosts,
        where.on,
        where.exclude,
        diagnostics,
        tuple(overrides or ()),
    )
    return Checked(compiled, diagnostics, files, loaded)


def _hosts(path: Path, where: Where) -> tuple[tuple[Host, ...], tuple[Diagnostic, ...]]:
    """Return the chosen hosts of a file, and what is wrong with it; then it has none: who knows how many it has."""
    from jobctl.jobspec.spec.diagnostics import has_errors
    from jobctl.jobspec.spec.hosts import UnknownHost, choose, load_hosts

    lines = load_hosts(path)
    if has_errors(lines.diagnostics):
        return (), lines.diagnostics
    try:
        chosen = choose(lines.hosts, where.on, where.exclude)
    except UnknownHost as unknown:
        raise Failed(f"{path}: {unknown}", 2, unknown.hint) from unknown
    if not chosen:
        raise Failed(f"{path}: `--on` and `--exclude` leave no host", 2, "choose others")
    return chosen, lines.diagnostics


def known_hosts(where: Where) -> tuple[Host, ...]:
    """Return the chosen hosts of a hosts file. Ends with 2 if something is wrong with it."""
    from jobctl.jobspec.spec.diagnostics import has_errors
    from jobctl.jobspec.spec.source import Source

    if where.hosts is None:
        return ()
    found, diagnostics = _hosts(where.hosts, where)
    if has_errors(diagnostics):
        show_diagnostics(diagnostics, Source(str(where.hosts), "", None))
        details = {"diagnostics": [diagnostic.to_json() for diagnostic in diagnostics]}
        raise Failed("", 2, details=details, kind="invalid-hosts")
    return found


def compile_job(
    job: str | None, overrides: Sequence[str] | None, where: Where, *, quiet: bool = False, as_json: bool = False
) -> Compiled:
    """Return the compiled job; diagnostics go to stderr (errors with `as_json` to stdout), errors end the command with 2."""
    checked = check(job, overrides, where)
    if not (quiet if checked.compiled else as_json):
        show_diagnostics(checked.diagnostics, checked.loaded.source)
    if checked.compiled is None:
        details = {"valid": False, "diagnostics": [diagnostic.to_json() for diagnostic in checked.diagnostics]}
        raise Failed("", 2, details=details, kind="invalid-spec")
    if not quiet:
        say_unused_hosts(checked, where)
        _say_left_out(checked, where)
    return checked.compiled


def _say_left_out(checked: Checked, where: Where) -> None:
    """Tell what of the code's folder is not sent, where anything is."""
    from jobctl.code import say_left_out, selection

    if checked.compiled is None or checked.compiled.target == "local":
        return
    code = selection(checked.loaded, checked.files[0], where.hosts)
    if code is not None:
        say_left_out(code)


def say_unused_hosts(checked: Checked, where: Where) -> None:
    """Tell that the target is this machine, although a hosts file lies beside the spec, if nobody has chosen so."""
    unused = checked.files[0].parent / "hosts.txt"
    if where.target is None and where.hosts is None and not in_cluster(where) and unused.is_file():
        option = f"--hosts {shlex.quote(str(unused))}"
        console.say(f"target local: this machine ({unused} lies there unused; {option} uses it)")


def show_diagnostics(diagnostics: Sequence[Diagnostic], source: Source, stream: Any = None) -> None:
    """Print diagnostics with source lines and carets, on stderr unless told otherwise."""
    from jobctl.jobspec.spec.diagnostics import render_text

    lines: dict[str, list[str]] = {}
    for diagnostic in diagnostics:
        file = diagnostic.span.file
        if file not in lines:
            lines[file] = source_lines(file, source)
        console.write(_coloured(render_text(diagnostic, lines[file]), stream) + "\n", stream)


def _coloured(text: str, stream: Any) -> str:
    """Colour the words `error`, `warning` and `hint` at the beginning of lines, and the carets."""
    head, *rest = text.split("\n")
    word, colon, message = head.partition(":")
    lines = [console.style(word, "red" if word == "error" else "yellow", stream) + colon + message]
    for line in rest:
        if line.startswith("hint:"):
            line = console.style("hint", "cyan", stream) + line[4:]
        elif line.endswith("^") and line.lstrip().startswith("|"):
            before = line.rstrip("^")
            line = before + console.style(line[len(before) :], "bold", stream)
        lines.append(line)
    return "\n".join(lines)


def source_lines(file: str, source: Source) -> list[str]:
    """Return the lines of a file that a diagnostic points into; none if it cannot be read as text."""
    from jobctl.jobspec.spec.source import MAX_BYTES, split_lines

    lines = source.lines(file)
    if lines is not None:
        return lines
    for path in (Path(file), Path(source.file).parent / file):
        try:
            with path.open("rb") as opened:
                return split_lines(opened.read(MAX_BYTES).decode("utf-8-sig", "replace"))
        except OSError:
            continue
    return []


def owner() -> str:
    """Return whose jobs these are: user@machine, as in the label `jobctl.owner`."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def plan_of(
    compiled: Compiled,
    placement: Mapping[int, str] | None = None,
    count: int | None = None,
    services: Mapping[str, str] | None = None,
    devices: Mapping[str, int] | None = None,
) -> Plan:
    """Return the plan of a compiled job, its nodes, services and devices placed and counted as given. Ends with 2 where it cannot be planned."""
    from jobctl.jobspec import planner
    from jobctl.jobspec.deploy.host.devices import count_devices
    from jobctl.jobspec.planner.context import Placement, PlanError

    context = context_of(compiled)
    if compiled.target == "local" and (found := count_devices(compiled.spec.devices.kind)):
        devices = {"localhost": found}
    try:
        plan = planner.plan(
            compiled.spec, compiled.hosts, context, Placement(placement or {}, services or {}), devices, count
        )
    except PlanError as error:
        if compiled.target == "local" and error.code == "devices-unknown":
            message = f"{compiled.path}: this machine has no devices of kind `{compiled.spec.devices.kind}`"
            hint = "are the driver and its device nodes there? `devices: cpu` asks for none"
            raise Failed(f"{message} [devices-missing]", 3, hint) from error
        raise Failed(f"{compiled.path}: {error.message} [{error.code}]", 2, error.hint) from error
    if plan.code is None:
        return plan
    from jobctl.code import no_code

    withheld = (*plan.code.withheld, *no_code(compiled.path, compiled.hosts_path))
    plan = replace(plan, code=replace(plan.code, withheld=withheld))
    return plan if plan.target == "local" else _packed(plan)


def _packed(plan: Plan) -> Plan:
    """Return `plan` with the version of its code, and with the code itself where manifests carry it."""
    from jobctl.jobspec.deploy.host.send_code import archive_of
    from jobctl.jobspec.deploy.store.code import code_hash

    assert plan.code is not None
    archive = archive_of(plan) if plan.target == "kubernetes" else None
    return replace(plan, code=replace(plan.code, archive=archive, version=code_hash(plan)))


def context_of(compiled: Compiled) -> Context:
    """Return what the planner may know of the outside."""
    from jobctl.jobspec.planner.context import Context
    from jobctl.version import version

    spec, directory = compiled.spec, compiled.directory
    here = spec.script is not None and (directory / spec.script).is_file()
    return Context(compiled.target, str(directory), owner(), version(), here)


def deployer_of(directory: JobDir, target: str, inventory: Inventory | None, plan: Plan | None = None) -> Deployer:
    """Return what brings a job up on hosts or on this machine, and looks at it."""
    if inventory is not None:
        from jobctl.jobspec.deploy.targets.hosts import Hosts

        return Hosts(directory, "ssh" if target == "ssh" else "compose", inventory, plan)
    from jobctl.jobspec.deploy.targets.local import Local

    return Local(directory, plan)


def ssh_options(config: Path | None, accept_new: bool, known: Inventory | None) -> SshOptions:
    """Return SSH's options: as given, or else as the job was started with. Ends with 2 for a file that is not there."""
    from jobctl.jobspec.deploy.model.inventory import SshOptions

    if config is not None and not config.is_file():
        raise Failed(f"there is no SSH configuration {config}", 2, "`--ssh-config` names a file like ~/.ssh/config")
    before = known.ssh if known else SshOptions()
    return SshOptions(config or before.config, accept_new or before.accept_new)
