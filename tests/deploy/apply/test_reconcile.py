"""Wanted against observed: whole plans of steps as text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.apply.reconcile import Wanted, reconcile
from jobctl.jobspec.deploy.model.control import Control, JobResult, Ledger
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.deploy.model.spare_state import SpareState
from jobctl.jobspec.plan.artefact_id import ArtefactId
from jobctl.jobspec.plan.generation import first_generation
from jobctl.jobspec.plan.types import HostRef, Plan
from jobctl.jobspec.planner import job as planner
from jobctl.jobspec.planner.context import Context
from jobctl.jobspec.spec.load import load_text
from tests.tools.failures import failed


def _plan(nodes: int) -> Plan:
    """The plan of a job on this machine."""
    text = f"name: job\nframework: torch\ncommand: [train]\nper: node\nnodes: {nodes}\nrecovery: {{max_restarts: 3}}\n"
    spec = load_text(Path("/none/job.yaml"), text, environ={}).spec
    assert spec is not None
    return planner.plan(spec, (), Context("local", "/none", "me@here", "0.1.0"))


PLAN = _plan(2)
A, B, H, NEW = map(ArtefactId, ("a", "b", "h", "new"))
OLDER = ArtefactId("a", "i", "1.0")
WANTED = Wanted(PLAN, dict.fromkeys((0, 1, 2), A), "code")
LEDGER = Ledger(1.0, "code")
CONTROL = Control(first_generation(PLAN), LEDGER)
RUNS = tuple(
    ObservedNode(i, "trainer", "localhost", "running", artefact=A, launcher=10 + i, generation=1) for i in (0, 1)
)
RUNNING = Observed(CONTROL, RUNS, supervised=True)
ENDED = tuple(replace(node, state="exited", launcher=None, artefact=None, exit_code=0) for node in RUNS)


def with_node(number: int, **changes: object) -> Observed:
    """The running job, with one node changed."""
    nodes = tuple(replace(n, **changes) if n.node == number else n for n in RUNS)  # type: ignore[arg-type]
    return replace(RUNNING, nodes=nodes)


# Node 1 failed in generation 1 with the others, but its host has not received generation 2, which they run.
SECOND = replace(CONTROL, generation=replace(CONTROL.generation, number=2))  # type: ignore[type-var]
MISSED = replace(
    RUNNING,
    control=SECOND,
    nodes=(replace(RUNS[0], generation=2), replace(RUNS[1], state="failed", reason="rank 1 exited with code 1")),
    outdated=("localhost",),
)
MOVED = replace(
    WANTED, plan=replace(PLAN, nodes=(PLAN.nodes[0], replace(PLAN.nodes[1], host=HostRef("spare", "10.0.0.9"))))
)
LOST = ObservedNode(1, "trainer", "localhost", "lost", reachable=False)
ONE_LOST = replace(RUNNING, nodes=(RUNS[0], LOST), unreachable={"gone": "not heard"})

HOT = replace(WANTED, spares={"s1": "v", "s2": "v"}, spare_artefacts={"s1": H, "s2": H})
SPARED = replace(RUNNING, spares=tuple(SpareState(host, "ready", H, 4000) for host in ("s1", "s2")))
ON_SPARE = replace(
    RUNNING,
    control=Control(first_generation(MOVED.plan), LEDGER),
    nodes=(RUNS[0], replace(RUNS[1], host="spare", artefact=H)),
)


CASES: dict[str, tuple[Wanted, Observed, str]] = {
    "a new job": (
        WANTED,
        Observed(Control(), (), supervised=False),
        """
        start node 0 on localhost: not running
        start node 1 on localhost: not running
        generation 1: the job is new
        supervise job: no supervisor runs
        """,
    ),
    "nothing changed": (WANTED, RUNNING, ""),
    "the supervisor is gone": (
        WANTED,
        replace(RUNNING, supervised=False),
        "supervise job: no supervisor runs",
    ),
    "no supervisor is wanted": (replace(WANTED, supervise=False), replace(RUNNING, supervised=False), ""),
    "up was killed before the control file": (
        WANTED,
        Observed(Control(), (replace(RUNS[0], state="pending", generation=0),), supervised=False),
        """
        start node 1 on localhost: not running
        generation 1: the job is new
        supervise job: no supervisor runs
        """,
    ),
    "up was killed before the second launcher": (
        WANTED,
        replace(RUNNING, nodes=(RUNS[0], ObservedNode(1, "trainer", "localhost", "pending"))),
        "start node 1 on localhost: not running",
    ),
    "a launcher is gone": (
        WANTED,
        with_node(1, state="failed", launcher=None, artefact=None, reason="its launcher was killed"),
        """
        start node 1 on localhost: its launcher was killed
        generation 2: node 1: its launcher was killed
        """,
    ),
    "a process failed": (
        WANTED,
        with_node(1, state="failed", reason="rank 1 exited with code 7"),
        "generation 2: node 1: rank 1 exited with code 7",
    ),
    "the spec changed": (
        replace(WANTED, artefacts={0: B, 1: B}),
        RUNNING,
        """
        replace node 0 on localhost: the spec changed
        replace node 1 on localhost: the spec changed
        generation 2: the spec changed
        """,
    ),
    "another version of jobctl has started it from the same inputs": (
        replace(WANTED, artefacts={0: ArtefactId("b", "i", "2.0"), 1: ArtefactId("b", "j", "2.0")}),
        replace(RUNNING, nodes=(replace(RUNS[0], artefact=OLDER), replace(RUNS[1], artefact=OLDER))),
        """
        replace node 1 on localhost: the spec changed
        generation 2: the spec changed
        """,
    ),
    "a launcher waits on a spare since another version of jobctl has started it": (
        replace(HOT, spare_artefacts={"s1": ArtefactId("b", "i", "2.0"), "s2": ArtefactId("b", "j", "2.0")}),
        replace(RUNNING, spares=tuple(SpareState(host, "ready", OLDER, 4000) for host in ("s1", "s2"))),
        "replace spare s2: what a node needs there changed",
    ),
    "a node moves to a spare where one waits that another version has started": (
        replace(
            MOVED, anew="h is lost", cleared=frozenset({1}), spare_artefacts={"spare": ArtefactId("b", "i", "2.0")}
        ),
        replace(ONE_LOST, spares=(SpareState("spare", "ready", OLDER, 4000),)),
        "generation 2: h is lost",
    ),
    "the code changed": (replace(WANTED, code="other"), RUNNING, "generation 2: the code changed"),
    "a node more": (
        replace(WANTED, plan=_plan(3)),
        RUNNING,
        """
        start node 2 on localhost: not running
        generation 2: nodes changed from 2 to 3
        """,
    ),
    "a node less": (
        replace(WANTED, plan=_plan(1)),
        RUNNING,
        """
        remove node 1 on localhost: no longer part of the job
        generation 2: nodes changed from 2 to 1
        """,
    ),
    "a host missed the generation": (WANTED, MISSED, "hand-over generation 2 to localhost: it has an older one"),
    "a host missed it, and no other is to begin": (
        replace(WANTED, begins=False),
        MISSED,
        "hand-over generation 2 to localhost: it has an older one",
    ),
    "a process failed, and no generation is to begin": (
        replace(WANTED, begins=False),
        with_node(1, state="failed", reason="rank 1 exited with code 7"),
        "",
    ),
    "a change while a host does not answer": (
        replace(MOVED, artefacts={0: B, 1: B}, plan=replace(MOVED.plan, nodes=(PLAN.nodes[0], MOVED.plan.nodes[1]))),
        replace(RUNNING, nodes=(RUNS[0], replace(LOST, host="spare")), unreachable={"spare": "not heard"}),
        "wait for spare: the spec changed; what runs goes on until then",
    ),
    "restart while a host does not answer": (
        replace(MOVED, anew="`jobctl restart`", replace=frozenset({0})),
        replace(RUNNING, nodes=(RUNS[0], replace(LOST, host="spare")), unreachable={"spare": "not heard"}),
        "wait for spare: `jobctl restart`; what runs goes on until then",
    ),
    "it succeeded": (WANTED, Observed(CONTROL, ENDED, supervised=False), ""),
    "it succeeded, and the spec changed": (
        replace(WANTED, artefacts={0: B, 1: B}),
        Observed(CONTROL, tuple(replace(node, artefact=A) for node in ENDED), supervised=False),
        """
        start node 0 on localhost: the spec changed
        start node 1 on localhost: the spec changed
        generation 2: the spec changed
        supervise job: no supervisor runs
        """,
    ),
    "it succeeded, and the code changed": (
        replace(WANTED, code="other"),
        Observed(CONTROL, ENDED, supervised=False),
        """
        start node 0 on localhost: the code changed
        start node 1 on localhost: the code changed
        generation 2: the code changed
        supervise job: no supervisor runs
        """,
    ),
    "a command was killed between stop and restart": (
        WANTED,
        replace(RUNNING, control=replace(CONTROL, generation=replace(CONTROL.generation, command="stop"))),  # type: ignore[type-var]
        "generation 2: a command was killed while it stopped the job",
    ),
    "it failed": (
        WANTED,
        Observed(
            Control(CONTROL.generation, replace(LEDGER, result=JobResult("failed", "budget", 2.0))),
            tuple(replace(n, state="failed", launcher=None, artefact=None, reason="exit 7") for n in RUNS),
            supervised=False,
        ),
        """
        start node 0 on localhost: not running
        start node 1 on localhost: not running
        generation 2: the job had failed
        supervise job: no supervisor runs
        """,
    ),
    "it was stopped": (
        WANTED,
        Observed(
            Control(CONTROL.generation, replace(LEDGER, result=JobResult("stopped", "by the user", 2.0))),
            tuple(replace(n, state="exited") for n in RUNS),
            supervised=False,
        ),
        """
        generation 2: the job was stopped
        supervise job: no supervisor runs
        """,
    ),
    "`down` was killed before its launchers have ended": (
        WANTED,
        Observed(
            replace(CONTROL, generation=replace(CONTROL.generation, command="finish")),  # type: ignore[type-var]
            (RUNS[0], ENDED[1]),
            supervised=False,
        ),
        """
        replace node 0 on localhost: it was told to end: `down` was cut off
        start node 1 on localhost: a command was killed while it stopped the job
        generation 2: a command was killed while it stopped the job
        supervise job: no supervisor runs
        """,
    ),
    "one node is done while the others finish": (
        WANTED,
        with_node(0, state="exited", launcher=None, artefact=None, exit_code=0),
        "",
    ),
    "restart": (replace(WANTED, anew="`jobctl restart`"), RUNNING, "generation 2: `jobctl restart`"),
    "restart of a node": (
        replace(WANTED, anew="`jobctl restart`", replace=frozenset({1})),
        RUNNING,
        """
        replace node 1 on localhost: `jobctl restart`
        generation 2: `jobctl restart`
        """,
    ),
    "everything was killed": (
        WANTED,
        Observed(
            Control(
                CONTROL.generation,
                replace(LEDGER, failures=(failed(node=0, rank=0, progress=None, ran=0.0),)),
            ),
            tuple(
                replace(n, state="failed", launcher=None, artefact=None, reason="its launcher was killed") for n in RUNS
            ),
            supervised=False,
        ),
        """
        start node 0 on localhost: its launcher was killed
        start node 1 on localhost: its launcher was killed
        generation 2: node 0: its launcher was killed
        supervise job: no supervisor runs
        """,
    ),
    "a node may still run on a host that is lost": (MOVED, ONE_LOST, ""),
    "a node cannot run on a lost host any more": (
        replace(MOVED, anew="node 1: localhost is lost", cleared=frozenset({1})),
        ONE_LOST,
        """
        start node 1 on spare: it moves from localhost
        generation 2: node 1: localhost is lost
        """,
    ),
    "a node leaves a host that answers": (
        replace(MOVED, anew="a rule excludes localhost"),
        replace(RUNNING, nodes=(RUNS[0], replace(RUNS[1], container="c"))),
        """
        remove node 1 on localhost: it runs on spare
        start node 1 on spare: it moves from localhost
        generation 2: a rule excludes localhost
        """,
    ),
    "a host is back that has a container of before": (
        WANTED,
        replace(RUNNING, strays=(replace(RUNS[1], host="old", state="fenced", container="c"),)),
        "remove node 1 on old: it runs on localhost",
    ),
    "spares that lack something": (
        replace(WANTED, spares={"new": "v2", "old": "v2", "ready": "v2", "silent": "v2"}),
        replace(RUNNING, prepared={"localhost": None, "new": None, "old": "v1", "ready": "v2"}),
        """
        prepare new: a spare that has not got what a node needs
        prepare old: a spare that has not got what a node needs
        """,
    ),
    "launchers wait on no spare": (
        replace(WANTED, spares={"s1": "v", "s2": "v", "s3": "v"}, spare_artefacts={"s1": H, "s3": H}),
        replace(RUNNING, spares=(SpareState("s1", "cold"), SpareState("s2", "cold"), SpareState("s3", "unreachable"))),
        "start spare s1: a node can move there without starting anything then",
    ),
    "they wait on all spares": (HOT, SPARED, ""),
    "what they were started from has changed": (
        replace(HOT, spare_artefacts={"s1": NEW, "s2": H}),
        SPARED,
        "replace spare s1: what a node needs there changed",
    ),
    "spares are not hot any more": (
        replace(HOT, spares={"s2": "v"}, spare_artefacts={"s1": H}),
        SPARED,
        """
        remove spare s1: no node moves there at once
        remove spare s2: no node moves there at once
        """,
    ),
    "a supervisor leaves spares as they are": (replace(HOT, spares=None, spare_artefacts={}), SPARED, ""),
    "a change waits for hosts, and spares go on with what runs": (
        replace(HOT, artefacts={0: B, 1: B}, spare_artefacts={"s1": NEW}),
        replace(SPARED, nodes=(RUNS[0], LOST), unreachable={"localhost": "not heard"}),
        "wait for localhost: the spec changed; what runs goes on until then",
    ),
    "a node moves to a spare where a launcher waits": (
        replace(MOVED, anew="h is lost", cleared=frozenset({1}), spare_artefacts={"spare": H}),
        replace(ONE_LOST, spares=(SpareState("spare", "warming", H, 4000),)),
        "generation 2: h is lost",
    ),
    "a node moves to a spare whose launcher was started from something else": (
        replace(MOVED, anew="h is lost", cleared=frozenset({1}), spare_artefacts={"spare": NEW}),
        replace(ONE_LOST, spares=(SpareState("spare", "ready", H, 4000),)),
        """
        start node 1 on spare: it moves from localhost
        generation 2: h is lost
        """,
    ),
    "a node runs in the container of a spare": (replace(MOVED, spare_artefacts={"spare": H}), ON_SPARE, ""),
    "the spec of a node in the container of a spare has changed": (
        replace(MOVED, artefacts={0: B, 1: B}, spare_artefacts={"spare": NEW}),
        ON_SPARE,
        """
        replace node 0 on localhost: the spec changed
        replace node 1 on spare: the spec changed
        generation 2: the spec changed
        """,
    ),
    "a node that comes back alone was stopped by its engine": (
        replace(WANTED, begins=False),
        with_node(1, state="exited", launcher=None, reason="stopped by SIGTERM"),
        "start node 1 on localhost: not running",
    ),
    "a node has ended well, and the others go on": (
        replace(WANTED, begins=False),
        with_node(1, state="exited", launcher=None, exit_code=0),
        "",
    ),
    "a host is used no more": (
        replace(MOVED, plan=replace(MOVED.plan, min_nodes=1)),
        replace(
            RUNNING,
            control=Control(
                replace(CONTROL.generation, members=CONTROL.generation.members[:1]),  # type: ignore[arg-type,union-attr]
                replace(LEDGER, excluded=("spare",)),
            ),
            nodes=RUNS[:1],
        ),
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_steps(case: str) -> None:
    wanted, observed, text = CASES[case]
    lines = [line.strip() for line in text.strip().splitlines()]
    assert [str(step) for step in reconcile(wanted, observed)] == lines
