"""The story of a run, as `report` tells it: from the job's local history alone, whatever became of the job. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from jobctl.jobspec.deploy.store.history import StepProgress
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.report.fitness import FitnessStory, fitness_of
from jobctl.jobspec.report.goodput import Share, effective, shares
from jobctl.jobspec.report.incidents import Incident, failures
from jobctl.jobspec.report.progress import Curve
from jobctl.jobspec.report.run import Course, course_of
from jobctl.jobspec.report.runs import Beginning, Event, events_of, runs
from jobctl.jobspec.report.timeline import NodeLine, node_lines


@dataclass(frozen=True, slots=True)
class Story:
    """One run of a job. Times are seconds since the epoch.

    `phase` is `succeeded`, `failed`, `stopped`, `down` (taken down while it ran), `running`, or `unknown`: it has not
    ended, and nobody writes on. `framework` and `target` are None where nobody knows them any more. `ratio` is the
    effective training time ratio, `by_steps` whether steps are known, so that it counts progress and not only
    running. `earlier` is how many runs of the job there were before.
    """

    job: str
    framework: str | None
    target: str | None
    phase: str
    reason: str
    begin: float
    end: float
    generations: tuple[Beginning, ...]
    nodes: tuple[NodeLine, ...]
    curves: tuple[Curve, ...]
    failures: tuple[Incident, ...]
    shares: tuple[Share, ...]
    ratio: float | None
    events: tuple[Event, ...]
    earlier: int = 0
    fitness: FitnessStory = field(default_factory=FitnessStory)

    @property
    def by_steps(self) -> bool:
        """Whether steps are known."""
        return bool(self.curves)

    @property
    def step(self) -> int | None:
        """The last step that was seen."""
        return self.curves[-1].top.step if self.curves else None

    @property
    def lost(self) -> float:
        """How many seconds failures cost in all."""
        return sum(failure.lost for failure in self.failures)

    @property
    def paused(self) -> float:
        """For how many seconds nobody wanted it to run."""
        return sum(share.end - share.begin for share in self.shares if share.use == "paused")


def tell(
    job: str,
    lines: Iterable[object],
    records: Iterable[StepProgress],
    now: float | None,
    framework: str | None = None,
    target: str | None = None,
) -> Story | None:
    """Return the story of the last run in the log, None if it tells of none.

    `lines` are the log's, parsed from JSON. `now` is the time if someone still writes the log, None if nobody does.
    `framework` and `target` fill in for an old log that does not say.
    """
    found = runs(events_of(lines))
    if not found:
        return None
    course = course_of(found[-1], records, now)
    lost = failures(course)
    parts = shares(course, lost)
    phase, reason = _phase(course, now)
    return Story(
        job=job,
        framework=_said(course, "framework") or framework,
        target=_said(course, "target") or target,
        phase=phase,
        reason=reason,
        begin=course.begin,
        end=course.end,
        generations=tuple(chapter.begins for chapter in course.chapters),
        nodes=node_lines(course.run, course.end),
        curves=course.curves,
        failures=lost,
        shares=parts,
        ratio=effective(parts),
        events=found[-1],
        earlier=len(found) - 1,
        fitness=fitness_of(course.run),
    )


def _phase(course: Course, now: float | None) -> tuple[str, str]:
    if course.final is not None:
        return course.final.phase, course.final.reason
    if now is None:
        return "unknown", "nobody writes its history any more: this is what is known"
    return ("running", "") if course.chapters else ("starting", "")


def _said(course: Course, key: str) -> str | None:
    """Return what `up` said of the job."""
    return next((value for event in course.run if event.kind == "up" and (value := event.text(key))), None)
