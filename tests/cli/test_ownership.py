"""Another job with the same checkpoint directory: when `up` refuses, and when it only warns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.deploy.store.jobdir import job_dir
from jobctl.jobspec.operations.errors import NotYours, Refused
from jobctl.jobspec.operations.resolve import ownership
from jobctl.jobspec.operations.resolve.ownership import refuse_others
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.hosts import parse_hosts
from jobctl.jobspec.spec.load import load_text
from jobctl.views.reporter import Terminal

SPEC = "name: {name}\nframework: torch\nimage: i\nscript: train.py\ncode: .\nnodes: 1\ncheckpoint: {checkpoint}\n"
NOTHING = Observed(Control(), (), False)
HINT = (
    "`jobctl down old` first, or another `checkpoint` (`per_job: true` gives each job a folder in it); a job that only"
    " reads these mounts them with `volumes` and names no such `checkpoint`; `--take-over` if both are to run"
)


def plan(name: str, hosts: str, checkpoint: str = "/mnt/ckpt") -> Plan:
    text = SPEC.format(name=name, checkpoint=checkpoint)
    spec: Any = load_text(Path("/specs/job.yaml"), text, environ={}).spec
    target: Any = "ssh" if hosts else "local"
    return planner.plan(spec, parse_hosts(hosts, "hosts.txt").hosts, Context(target, "/specs", "me@here", "1.0"))


def running(theirs: Plan) -> Observed:
    return Observed(Control(first_generation(theirs)), (), False, verdict=("running", None))


class Others:
    """One other job, `old`, of `plan`, of which a look at it shows `seen`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch

    def up(self, ours: Plan, theirs: Plan, seen: Observed | Exception, spec: str = "old.yaml") -> None:
        """Check what `up` checks of `ours`, brought up from `new.yaml`, while `theirs` is known from `spec`."""
        old = job_dir(self._folder, "old")
        old.create()
        old.remember({"target": theirs.target, "spec": str(self._folder / spec)}, theirs, {})
        path = self._folder / "new.yaml"
        path.write_text(SPEC.format(name=ours.job, checkpoint="/mnt/ckpt"))

        def observe() -> Observed:
            if isinstance(seen, Exception):
                raise seen
            return seen

        def handle(_: object) -> Any:
            if isinstance(seen, Refused):
                raise seen
            return SimpleNamespace(observe=observe, close=lambda: None)

        self._patch.setattr(ownership, "known_handle", handle)
        deployer: Any = SimpleNamespace(job=job_dir(self._folder, "new"), observe=lambda: NOTHING)
        compiled: Any = SimpleNamespace(path=path, overrides=())
        refuse_others(deployer, compiled, ours, Terminal(), fresh=False, take_over=False)


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Others:
    return Others(tmp_path, monkeypatch)


@pytest.mark.parametrize(("ours", "theirs"), [("a addr=10.0.0.1", "b addr=10.0.0.1"), ("a", "a"), ("", "")])
def test_a_job_on_the_same_host_that_writes_there_is_a_refusal(others: Others, ours: str, theirs: str) -> None:
    old = plan("old", theirs)
    with pytest.raises(NotYours) as refused:
        others.up(plan("new", ours), old, running(old))
    why = "job `old` still runs, and it writes to /mnt/ckpt: both jobs would write the same checkpoints"
    assert (refused.value.message, refused.value.exit_code, refused.value.hint) == (why, 5, HINT)


@pytest.mark.parametrize(("ours", "theirs"), [("a", "b"), ("node0 addr=10.0.0.1", "node0 addr=10.9.0.1")])
def test_a_job_on_other_hosts_is_a_warning(others: Others, ours: str, theirs: str, capsys: Any) -> None:
    old = plan("old", theirs)
    others.up(plan("new", ours), old, running(old))
    assert capsys.readouterr().err == (
        "warning: job `old` still runs and writes to /mnt/ckpt, on other hosts: is that another disk?\n"
    )


def test_a_job_that_writes_elsewhere_or_nothing_is_no_matter(others: Others, capsys: Any) -> None:
    old = plan("old", "a")
    for ours in (plan("new", "a", "/mnt/other"), plan("new", "b", "{dir: /mnt/ckpt, shared: false}")):
        others.up(ours, old, running(old))
    others.up(plan("new", "a"), old, NOTHING)  # it has ended
    assert capsys.readouterr().err == ""


SILENT = AllUnreachable({"a": HostError("a", "unreachable", "no route to host")}, NOTHING)
GONE = Refused("there is no context `c` in the kubeconfig", "see `kubectl config get-contexts`")


@pytest.mark.parametrize(
    ("problem", "why"),
    [(SILENT, "none of its hosts answers"), (GONE, GONE.message), (DeployError("no docker"), "no docker")],
)
def test_of_a_job_that_cannot_be_looked_at_only_the_renamed_one_is_refused(
    others: Others, problem: Exception, why: str, capsys: Any
) -> None:
    said = f"nobody can tell whether job `old` still runs ({why}), and it writes to /mnt/ckpt"
    others.up(plan("new", "a"), plan("old", "a"), problem)
    assert capsys.readouterr().err == f"warning: {said}\n"
    with pytest.raises(NotYours) as refused:
        others.up(plan("new", "a"), plan("old", "a"), problem, spec="new.yaml")
    hint = "name another `checkpoint`, or `--take-over` if that job has ended"
    assert (refused.value.message, refused.value.exit_code, refused.value.hint) == (said, 5, hint)


def test_a_renamed_job_is_refused_wherever_it_runs(others: Others) -> None:
    old = plan("old", "b")
    with pytest.raises(NotYours, match="job `old` still runs, and it writes to /mnt/ckpt"):
        others.up(plan("new", "a"), old, running(old), spec="new.yaml")
