"""The story of a job's last run, read from this machine's history."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import HostsFailed, Refused
from jobctl.jobspec.operations.inspect.status import is_written
from jobctl.jobspec.operations.unsupported import refuse_unsupported
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.targets import traits_of

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Failures
    from jobctl.jobspec.deploy.store.jobdir import JobDir
    from jobctl.jobspec.operations.resolve.job import Reached
    from jobctl.jobspec.report.fitness import FitnessStory
    from jobctl.jobspec.report.report import Story


@dataclass(frozen=True, slots=True)
class Gathered:
    """What came of collecting a story: why hosts do not answer, and whether the job runs where nobody watches it.

    `all_silent`: not one of them does.
    """

    silent: Failures = field(default_factory=dict)
    all_silent: bool = False
    runs: bool = False


def gather_story(directory: JobDir, reached: Reached) -> Gathered:
    """Collect what launchers have kept, as far as the job can be reached.

    Nothing is connected to for a job that is down, or was brought up elsewhere, unless `reached` names its hosts.
    """
    from jobctl.jobspec.deploy.apply.deployer import AllUnreachable
    from jobctl.jobspec.deploy.model.observed import SETTLED, phase
    from jobctl.jobspec.operations.targets.choose import target_of
    from jobctl.jobspec.operations.targets.table import known_handle

    if directory.job_record() is None and reached.hosts is None:
        return Gathered()
    target = target_of(directory, reached)
    refuse_unsupported(target, "report")
    handle = known_handle(directory, reached)
    try:
        runs = False
        if target is not None and not traits_of(target).is_supervised:
            with suppress(AllUnreachable):
                runs = phase(handle.observe())[0] not in SETTLED
        handle.events().gather()
        silent = handle.failures
        return Gathered(silent, bool(silent) and set(silent) >= set(handle.places()), runs)
    finally:
        handle.close()


def story_of(directory: JobDir, gathered: Gathered | None = None) -> Story:
    """Return the story of the job's last run. Raises Refused if there is no history of it here.

    Raises HostsFailed if nothing was `gathered` because no host answers.
    """
    from jobctl.jobspec.deploy.store import events
    from jobctl.jobspec.deploy.store.history import read_progress
    from jobctl.jobspec.report.report import tell

    gathered = gathered or Gathered()
    now = time.time() if gathered.runs or is_written(directory) else None
    lines, _ = events.read(directory.events)
    plan = directory.plan()
    refuse_unsupported(plan.target if plan else None, "report")
    known = (plan.framework, plan.target) if plan else (None, None)
    story = tell(directory.name, lines, read_progress(directory.progress), now, *known)
    if story is None and gathered.all_silent:
        raise HostsFailed(
            f"no host answers, and no history of job `{directory.name}` is known here", failures=gathered.silent
        )
    if story is None:
        raise Refused(
            f"there is no history of job `{directory.name}` in {directory.root.parent.parent}",
            "`jobctl up` writes it where it is called; `jobctl list` shows the jobs that are up",
            failures=gathered.silent,
        )
    return replace(story, fitness=_with_history(story.fitness, directory))


def _with_history(fitness: FitnessStory, directory: JobDir) -> FitnessStory:
    """Add what the hosts have measured so far with the same image and effort, as this machine has kept it."""
    from jobctl.jobspec.deploy.store.speeds import Speeds

    condition = f"{fitness.image or 'no image'} {fitness.mode}"
    speeds = Speeds(directory.state / "fitness", dict.fromkeys(fitness.hosts, condition))
    return fitness.with_history(speeds.past())
