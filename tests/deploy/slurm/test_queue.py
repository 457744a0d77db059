"""What Slurm's texts mean: of 22.05 and 24.11, of queues that lie, and of jobs that Slurm has forgotten."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from jobctl.jobspec.deploy.slurm.job_state import observed_job
from jobctl.jobspec.deploy.slurm.queue import QueuePlace, read_look, read_place
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.render.payload import control_json
from tests.render.plans import planned

SPEC = "name: tiny\nframework: torch\nscript: train.py\nslurm: {directory: /shared}\n"
MARK = "jobctl /shared/.jobctl/tiny"
NOW = 1_800_000_000
PENDING = f"7|PENDING|Resources|{NOW + 60}|12:00:00||{MARK}"
RUNNING = f"7|RUNNING|None|{NOW - 60}|1-02:03:04|s[1-2]|{MARK}"
SHOWN = (
    "JobId=7 JobName=tiny UserId=ada(1000) JobState={} Reason={} Dependency=(null) ExitCode=1:0 StartTime=1800000000"
    " NodeList=s[1-2] BatchHost=s1 Comment=jobctl /shared/.jobctl/tiny StdErr=/a b/slurm.out"
)
UNKNOWN = "slurm_load_jobs error: Invalid job id specified"
UNSEEN = "it wrote nothing: its machine may not see the job's directory (`slurm.directory`)"
SILENT = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def look(
    squeue: tuple[str, int] | None = ("", 0),
    scontrol: tuple[str, int] | None = None,
    sacct: tuple[str, int] | None = None,
    known: str = "7",
    age: int | None = None,
    **allocation: Any,
) -> Any:
    """A job as it looks after Slurm's commands have said this, and a coordinator has written that."""
    text = f"== known\n{NOW} {known}\n== 0\n== age\n{'' if age is None else age}\n== 0\n"
    for name, said in (("squeue", squeue), ("scontrol", scontrol), ("sacct", sacct)):
        if said is not None:
            text += f"== {name}\n{said[0]}\n\n== {said[1]}\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        content = json.dumps(allocation).encode()
        member = tarfile.TarInfo("run/allocation.json")
        member.size = len(content)
        if allocation:
            archive.addfile(member, io.BytesIO(content))
    return read_look(f"{text}== files\n".encode() + packed.getvalue(), MARK)


def verdict(seen: Any) -> Any:
    return observed_job(seen, None).verdict


def test_a_job_in_the_queue_says_why_it_waits() -> None:
    seen = look((f"8|PENDING|Priority|N/A|1:00||another\n{PENDING}", 0))
    assert (seen.entry.job_id, seen.entry.expected_start, seen.entry.time_left) == ("7", NOW + 60.0, 43200.0)
    assert verdict(seen)[0] == "pending"
    assert verdict(seen)[1].startswith("job 7 waits in Slurm's queue (Resources); expected to start at ")
    held = look((PENDING.replace("Resources", "JobHeldUser").replace(str(NOW + 60), "N/A"), 0))
    assert verdict(held)[1] == (
        "job 7 waits in Slurm's queue (JobHeldUser: it is held: `scontrol release` lets it go on)"
    )


# What the script `place` prints: number, priority, partition, reason.
WAITING = """\
3|4294901757|gpu|Resources
12_[1-9]|4294901750|gpu|Priority
7|4294901750|gpu|Priority
8|4294901750|gpu|Priority
2|0|gpu|JobHeldUser
5|4294901759|gpu|Dependency
6|4294901759|gpu|BeginTime
"""


@pytest.mark.parametrize(
    ("said", "place"),
    [
        (WAITING, QueuePlace(2, 4, "gpu")),
        (WAITING.replace("|4294901757|", "|9|"), QueuePlace(1, 4, "gpu")),
        (WAITING.replace("7|4294901750|gpu|Priority", "7|4294901750|gpu|BeginTime"), None),
        ("7|N/A|gpu|Priority\n", None),
        ("", None),
    ],
)
def test_a_job_stands_among_those_that_wait_for_its_partition(said: str, place: QueuePlace | None) -> None:
    """By priority, and then by age; those that Slurm does not consider yet do not count."""
    assert read_place(said, "7") == place


def test_a_place_in_the_queue_is_told() -> None:
    seen = look((PENDING.replace("Resources", "Priority").replace(str(NOW + 60), "N/A"), 0))
    placed = observed_job(replace(seen, entry=replace(seen.entry, place=QueuePlace(2, 4, "gpu"))), None)
    words = "job 7 waits in Slurm's queue (Priority); it is number 2 of 4 that wait for partition `gpu`"
    assert placed.verdict == ("pending", words)
    assert placed.slurm is not None
    assert placed.slurm.position == 2


def test_a_job_that_runs_has_nodes_and_time_left() -> None:
    seen = look((RUNNING, 0))
    assert (seen.entry.nodes, seen.entry.time_left, seen.entry.runs) == ("s[1-2]", 93784.0, True)
    assert look((RUNNING.replace("1-02:03:04", "UNLIMITED"), 0)).entry.time_left is None


@pytest.mark.parametrize("queue", [("", 0), (SILENT, 1)], ids=["empty", "silent"])
def test_a_queue_alone_is_no_proof_that_a_job_is_gone(queue: tuple[str, int]) -> None:
    seen = look(queue, (SHOWN.format("PENDING", "Priority"), 0))
    assert (seen.problem, seen.entry.state, seen.entry.reason) == (None, "PENDING", "Priority")


@pytest.mark.parametrize(
    ("ours", "theirs", "is_ours"),
    [
        ("JobName=tiny", "JobName=other", True),  # somebody has renamed it
        (MARK, "4 of 8 cores were used", True),  # some clusters write into comments
        ("=tiny UserId=ada(1000)", "=other UserId=bob(1001)", False),
    ],
)
def test_a_job_that_has_got_the_number_of_this_one_is_another(ours: str, theirs: str, *, is_ours: bool) -> None:
    """Slurm counts from 1 again at some time, or after it was installed again. `down` would cancel that job."""
    shown = SHOWN.format("RUNNING", "None").replace(ours, theirs)
    shown = shown if is_ours else shown.replace(MARK, "jobctl /shared/.jobctl/other")
    assert (look(("", 0), (shown, 0)).entry is not None) == is_ours
    assert look((SILENT, 1), (shown, 0)).problem == (None if is_ours else SILENT)


@pytest.mark.parametrize("queue", [("", 0), (SILENT, 1)], ids=["empty", "silent"])
def test_warnings_of_slurms_commands_hide_no_job(queue: tuple[str, int]) -> None:
    """`down` would remove the files of a job that runs."""
    warning = "scontrol: warning: slurm.conf has an option that is deprecated"
    seen = look(queue, (f"{warning}\n{SHOWN.format('RUNNING', 'None')}", 0))
    assert (seen.problem, seen.entry.state) == (None, "RUNNING")
    assert look(("", 0), (warning, 0)).problem == warning
    assert look(("", 0), ("", 0)).problem == "Slurm does not answer"


def test_where_slurm_does_not_answer_nothing_is_known() -> None:
    assert look((SILENT, 1), (SILENT, 1)).problem == SILENT
    assert look(("", 0), (SILENT, 1)).problem == SILENT
    assert look((SILENT, 1), (UNKNOWN, 1)).problem == SILENT


def test_a_job_that_slurm_has_forgotten_ended_as_its_coordinator_says() -> None:
    result = {"phase": "failed", "reason": "rank 1 exited with code 3", "at": NOW, "exit_code": 3}
    gone = look(("", 0), (UNKNOWN, 1), job_id="7", state="ended", age=9000, result=result)
    assert verdict(gone) == ("failed", "rank 1 exited with code 3")
    assert verdict(look(("", 0), (UNKNOWN, 1), ("7|TIMEOUT|0:0", 0)))[0] == "failed"
    assert verdict(look(("", 0), (UNKNOWN, 1))) == (
        "failed",
        f"Slurm knows nothing of job 7 any more, and that left no result; {UNSEEN}",
    )
    assert verdict(look(("", 0), known="")) == ("stopped", "nothing of it is in Slurm")


def test_a_coordinator_that_writes_proves_that_the_job_runs() -> None:
    nodes = {"0": {"host": "s1", "heard": True, "runs": True}}
    alive = look(("", 0), (UNKNOWN, 1), job_id="7", state="running", age=1, nodes=nodes, result=None)
    assert verdict(alive)[0] == "starting"


@pytest.mark.parametrize(
    ("state", "phase"),
    [("CANCELLED", "stopped"), ("TIMEOUT", "failed"), ("NODE_FAIL", "failed"), ("FAILED", "failed")],
)
def test_a_job_that_left_no_result_ended_as_slurm_says(state: str, phase: str) -> None:
    assert verdict(look(("", 0), (SHOWN.format(state, "None"), 0)))[0] == phase


def test_a_batch_script_that_has_died_is_told_with_its_last_line() -> None:
    """Only a folder of the login node would say it otherwise: there is no result, and no node has begun."""
    ended = look(("", 0), (SHOWN.format("FAILED", "None"), 0))
    words = "job 7: it ended in Slurm as FAILED without a result, exit code 1:0; "
    assert (
        verdict(ended)[1] == f"{words}it wrote nothing: its machine may not see the job's directory (`slurm.directory`)"
    )
    said = "slurm_script: 13: exec: python3: not found"
    assert verdict(replace(ended, said=said))[1] == f"{words}slurm.out ends with: {said}"
    known = look(("", 0), (SHOWN.format("TIMEOUT", "None"), 0))
    assert verdict(replace(known, said=said))[1] == "job 7: its time limit is over, and it did not go on, exit code 1:0"
    began = look(("", 0), (SHOWN.format("FAILED", "None"), 0), job_id="7", state="running")
    assert verdict(began)[1] == words[:-2]


def recorded(name: str, version: str = "24.11") -> tuple[str, int]:
    """Return what a command of Slurm 24.11.5 (Debian 13) or 22.05.8 (Debian 12) has printed, and its exit code."""
    path = Path(__file__).parent / f"slurm-{version}" / f"{name}.txt"
    code = int(name.startswith(("unknown", "no-")) and version == "24.11")
    return path.read_text(encoding="utf-8").rstrip("\n"), code


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("completed", ("1", "COMPLETED", "0:0")),
        ("failed", ("2", "FAILED", "3:0")),
        ("cancelled", ("3", "CANCELLED", "0:0")),
        ("timeout", ("4", "TIMEOUT", "0:0")),
        ("running", None),
        ("pending", None),
        ("unknown", None),
    ],
)
def test_how_a_job_has_ended_that_only_accounting_knows(name: str, known: tuple[str, str, str] | None) -> None:
    """From a slurmdbd of 22.05.8. What runs or waits there and nowhere else is a leftover of accounting's."""
    entry = look(("", 0), (UNKNOWN, 1), recorded(f"{name}.sacct", "22.05")).entry
    assert (entry and (entry.job_id, entry.state, entry.exit_code)) == known
    assert entry is None or entry.over


def test_texts_of_slurm_24_11() -> None:
    runs = look(recorded("running.squeue"), recorded("running.scontrol"), known="9").entry
    assert (runs.job_id, runs.state, runs.reason, runs.nodes, runs.runs) == ("9", "RUNNING", None, "s[1-3]", True)
    waits = look(recorded("waiting.squeue"), known="9").entry
    assert (waits.state, waits.reason, waits.nodes, waits.waits) == ("PENDING", "BeginTime", None, True)
    assert waits.expected_start == 1795568716.0
    # The same from scontrol alone: its words are the same as in 22.05.
    shown = look(("", 0), recorded("waiting.scontrol"), recorded("no-accounting.sacct"), known="9").entry
    assert (shown.state, shown.reason, shown.nodes, shown.expected_start) == (
        "PENDING",
        "BeginTime",
        None,
        1795568716.0,
    )
    shown = look(("", 0), recorded("running.scontrol"), known="9").entry
    assert (shown.state, shown.reason, shown.nodes) == ("RUNNING", None, "s[1-3]")
    ended = look(("", 0), recorded("failed.scontrol"), recorded("no-accounting.sacct"), known="3")
    assert (ended.problem, ended.entry.over, ended.entry.exit_code) == (None, True, "2:0")
    gone = look(("", 0), recorded("unknown.scontrol"), recorded("no-accounting.sacct"), known="9999")
    assert (gone.problem, gone.entry) == (None, None)


def test_while_the_controller_is_down_nodes_are_as_the_coordinator_says() -> None:
    nodes = {"0": {"host": "s1", "heard": False, "runs": True, "ended": None}}
    seen = look((SILENT, 1), job_id="7", state="running", age=1, nodes=nodes, result=None)
    (node,) = observed_job(seen, None).nodes
    assert (seen.problem, node.state, node.host) == (SILENT, "lost", "s1")


def test_a_node_that_its_machine_cannot_start_waits_and_says_why() -> None:
    nodes = {"0": {"host": "s1", "heard": True, "runs": False, "ended": None, "refused": "Error: no such device"}}
    seen = look((RUNNING, 0), job_id="7", state="running", age=1, nodes=nodes, result=None)
    (node,) = observed_job(seen, None).nodes
    words = "s1 cannot start it: Error: no such device"
    assert (node.state, node.reason, verdict(seen)) == ("pending", words, ("starting", f"node 0: {words}"))


def test_what_has_ended_before_a_generation_begins_is_no_running_node() -> None:
    nodes = {"0": {"host": "s1", "heard": True, "runs": True, "ended": None}}
    seen = look((RUNNING, 0), job_id="7", state="running", age=1, nodes=nodes, result=None)
    first = first_generation(planned(SPEC, "slurm"))
    for number, expected in ((1, "running"), (2, "restarting")):
        control = json.loads(control_json(replace(first, number=number)))
        report = {"generation": 1, "state": "stopped", "exit_code": 143, "launcher": {"pid": 9}}
        files = {PurePosixPath("node-0/report.json"): report, PurePosixPath("run/control.json"): control}
        assert verdict(replace(seen, files={**seen.files, **files}))[0] == expected


def test_a_batch_script_that_writes_no_more_is_not_believed() -> None:
    nodes = {"0": {"host": "s1", "heard": True, "runs": True, "ended": None}}
    seen = look((RUNNING, 0), job_id="7", state="running", age=40, nodes=nodes, result=None)
    assert verdict(seen)[0] == "degraded"
    assert [node.state for node in observed_job(seen, None).nodes] == ["lost"]
    suspended = look((RUNNING.replace("RUNNING", "SUSPENDED"), 0), job_id="7", state="running", age=40)
    words = "`scontrol resume` lets it go on, from its checkpoint if that takes longer than `recovery.host_timeout`"
    assert verdict(suspended) == ("degraded", f"job 7 is suspended in Slurm: {words}")


@pytest.mark.parametrize("state", ["running", "interrupted", "starting"])
def test_a_job_that_slurm_ends_is_not_said_to_go_on(state: str) -> None:
    """Whether somebody has cancelled it or Slurm has requeued it, nobody can tell yet."""
    ends, told = (RUNNING.replace("RUNNING", "COMPLETING"), 0), {"job_id": "7", "reason": "Slurm ends the job"}
    words = "Slurm ends job 7; whether it goes on shows once that is done"
    assert verdict(look(ends, age=1, state=state, **told)) == ("restarting", words)
    assert verdict(look(ends, age=1, state="handed-over", **told)) == ("restarting", "Slurm ends the job")
    result = {"phase": "succeeded", "reason": "all ranks have ended well"}
    assert verdict(look(ends, age=1, state="ended", result=result, **told))[0] == "succeeded"


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("JobHeldAdmin", "an administrator holds it"),
        ("PartitionDown", "its partition is down"),
        ("Nodes required for job are DOWN, DRAINED or reserved", "`sinfo -R`"),
        ("BeginTime", "two minutes later"),
        ("QOSMaxWallDurationPerJobLimit", "a limit of the account or QOS for one job"),
        ("AssocMaxNodePerJobLimit", "a limit of the account or QOS for one job"),
        ("AccountNotAllowed", "`slurm.account`"),
    ],
)
def test_a_reason_that_nobody_understands_is_explained(reason: str, remedy: str) -> None:
    assert remedy in str(verdict(look((PENDING.replace("Resources", reason), 0)))[1])
