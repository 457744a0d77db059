"""What Slurm says of a job, from the texts of its commands. Pure."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from pathlib import PurePosixPath

from jobctl.jobspec.deploy.model.untrusted import Json, number_in, parse_object
from jobctl.jobspec.deploy.transport.answers import NO_ARCHIVE
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.durations import parse_slurm

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset(
    {"CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}
)
NOT_KNOWN = "Invalid job id"  # how scontrol says that it has forgotten a job, or never had it


# Reasons of jobs that Slurm does not consider yet.
_NOT_YET = ("BeginTime", "Dependency", "JobHeld", "Reservation")


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The place of a job among those that wait for the same partition: `number` 1 has the highest priority."""

    number: int
    count: int
    partition: str


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A job as Slurm has it. `expected_start` is in seconds since the epoch, `time_left` in seconds; None: nobody knows."""

    job_id: str
    state: str
    reason: str | None = None
    expected_start: float | None = None
    nodes: str | None = None
    time_left: float | None = None
    exit_code: str | None = None
    place: QueuePlace | None = None

    @property
    def waits(self) -> bool:
        """Whether it waits for its allocation."""
        return self.state in WAITING

    @property
    def runs(self) -> bool:
        """Whether it has an allocation."""
        return self.state in RUNNING

    @property
    def over(self) -> bool:
        """Whether Slurm is done with it."""
        return not self.waits and not self.runs


@dataclass(frozen=True, slots=True)
class SlurmLook:
    """What one look at a job has found.

    `entry` is the job in Slurm, None if Slurm knows none. `problem` is why nobody can tell whether it does. `asked` is whether
    Slurm was asked at all. `now` is the time there, `age` how many seconds ago a coordinator has written, by one clock, None if
    nobody can tell. `said` is the last line that the allocation has printed, None if it has printed none. `files` are those of the job's directory, `there` whether there is one.
    """

    known_id: str | None
    now: float
    entry: QueueEntry | None = None
    problem: str | None = None
    asked: bool = False
    files: Mapping[PurePosixPath, Json] = field(default_factory=dict)
    there: bool = False
    age: float | None = None
    said: str | None = None

    @property
    def allocation(self) -> Json:
        """What the coordinator in the allocation has written, nothing if there is none."""
        return self.files.get(PurePosixPath("run/allocation.json"), {})

    @property
    def result(self) -> Json | None:
        """How the coordinator says that the job ended, None if it has not said so."""
        result = self.allocation.get("result")
        return result if isinstance(result, dict) else None

    def reports(self) -> Iterator[tuple[int, Json]]:
        """Yield the report of each node's launcher."""
        for path, data in self.files.items():
            node = number_in(path.parts[0][5:]) if path.parts[0].startswith("node-") else None
            if node is not None and path.name == "report.json":
                yield node, data

    @property
    def is_fresh(self) -> bool:
        """Whether a coordinator has written that just now: then the job runs, whatever Slurm says."""
        ended = self.allocation.get("state") in ("ended", "handed-over", "interrupted")
        return bool(self.allocation) and self.age is not None and not ended and self.age < FRESH

    @property
    def is_stale(self) -> bool:
        """Whether a coordinator that ran has not written for so long that its machine must be lost, or hangs."""
        return self.allocation.get("state") == "running" and self.age is not None and self.age > STALE


FRESH = 10.0  # seconds
STALE = 30.0  # seconds
LONGEST_LINE = 400  # characters of what an allocation has printed


def read_look(said: bytes, mark: str) -> SlurmLook:
    """Return what the script `look` has printed; `mark` is the comment of the job in the queue."""
    head, _, packed = said.partition(b"\n== files\n")
    parts = _parts(head.decode("utf-8", "replace"))
    now, _, known = parts.get("known", ("0", 1))[0].partition(" ")
    age = parts.get("age", ("", 1))[0]
    files, there = _unpacked(packed)
    written = float(age) if age else None
    look = SlurmLook(known.strip() or None, float(now), files=files, there=there, age=written)
    if "squeue" not in parts:
        return look
    entry, problem = _entry(parts, mark)
    printed = parts.get("said", ("", 0))[0][1 : LONGEST_LINE + 1]
    return replace(look, entry=entry, problem=problem, asked=True, said=printed or None)


def read_place(said: str, job_id: str) -> QueuePlace | None:
    """Return the place of a job in the queue by what the script `place` has printed, None if that does not tell.

    Of equal priority, Slurm takes the job first that was submitted first. Jobs that it does not consider yet do not count.
    """
    rows = [row for line in said.splitlines() if len(row := line.split("|", 3)) == 4 and row[1].isdigit()]
    waiting = [row for row in rows if not row[3].startswith(_NOT_YET)]
    order = sorted(waiting, key=lambda row: (-int(row[1]), number_in(row[0].partition("_")[0]) or 0))
    numbers = {row[0]: (number, row[2]) for number, row in enumerate(order, 1)}
    if job_id not in numbers:
        return None
    number, partition = numbers[job_id]
    return QueuePlace(number, len(order), partition)


def _parts(text: str) -> dict[str, tuple[str, int]]:
    """Return what each command has said, and its exit code."""
    found = {}
    for match in re.finditer(r"^== ([a-z]+)\n(.*?)\n?^== (\d+)$", text, re.DOTALL | re.MULTILINE):
        found[match[1]] = match[2].strip("\n"), int(match[3])
    return found


def _entry(parts: Mapping[str, tuple[str, int]], mark: str) -> tuple[QueueEntry | None, str | None]:
    """Return the job as Slurm has it, and why that is not known. An empty queue alone is no proof that it has gone."""
    queue, code = parts["squeue"]
    queued = [entry for line in queue.splitlines() if (entry := _queued(line, mark))] if code == 0 else []
    alive = [entry for entry in queued if not entry.over]
    if alive:
        return max(alive, key=lambda entry: (entry.runs, int(re.sub(r"\D", "", entry.job_id) or 0))), None
    shown, shown_code = parts.get("scontrol", ("", 0))
    problem = _first_line(queue) if code else None
    if "scontrol" in parts and shown_code == 0:
        told = next((line for line in shown.splitlines() if line.startswith("JobId=")), None)
        if told is None:  # it never says nothing of a job, unless it does not tell the truth
            return None, problem or _first_line(shown)
        entry = _shown(told, mark)
        return entry, problem if entry is None else None
    if shown_code != 0 and NOT_KNOWN not in shown:
        problem = problem or _first_line(shown)
    if problem:
        return None, problem
    kept, kept_code = parts.get("sacct", ("", 1))
    return (_accounted(kept) if kept_code == 0 else None), None


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "Slurm does not answer"


def _queued(line: str, mark: str) -> QueueEntry | None:
    fields = line.split("|", 6)
    if len(fields) < 7 or fields[6].strip() != mark:
        return None
    job_id, state, reason, start, left, nodes, _ = (one.strip() for one in fields)
    known = None if reason in ("", "None") else reason
    return QueueEntry(job_id, state, known, _moment(start), nodes or None, parse_slurm(left))


def _shown(line: str, mark: str) -> QueueEntry | None:
    """Return a job as `scontrol show job` has it: words `Name=value`; a value ends before the next such word.

    None of another job that has the number by now: Slurm counts from 1 again, at its limit or after it was installed again.
    """
    fields = dict(re.findall(r"(\b[A-Z][A-Za-z/:]*)=(.*?)(?=\s+[A-Z][A-Za-z/:]*=|\s*$)", line))
    if "JobId" not in fields or "JobState" not in fields:
        return None
    if fields.get("JobName") != mark.rpartition("/")[2] and fields.get("Comment") != mark:
        return None
    reason = fields.get("Reason")
    nodes = fields.get("NodeList")
    return QueueEntry(
        fields["JobId"],
        fields["JobState"].split()[0],
        None if reason in (None, "None") else reason,
        _moment(fields.get("StartTime", "")),
        None if nodes in (None, "(null)", "") else nodes,
        exit_code=fields.get("ExitCode"),
    )


def _accounted(text: str) -> QueueEntry | None:
    """Return how a job has ended, as accounting has kept it.

    One that runs or waits there runs nowhere: accounting alone has not heard of its end ("runaway jobs").
    """
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == 3:
            entry = QueueEntry(fields[0], fields[1].split()[0], exit_code=fields[2])
            return entry if entry.over else None
    return None


def _moment(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _unpacked(packed: bytes) -> tuple[dict[PurePosixPath, Json], bool]:
    """Return the JSON files in a tar; one that is being replaced just now is left out."""
    found: dict[PurePosixPath, Json] = {}
    there = False
    with suppress(*NO_ARCHIVE), tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            there = True
            file = archive.extractfile(member) if member.isfile() else None
            data = parse_object(file.read()) if file else None
            if data is not None:
                found[PurePosixPath(member.name)] = data
    return found, there
