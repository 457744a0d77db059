"""What `up` would do, and what a plan says of the whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl import console

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.reconcile import Step
    from jobctl.jobspec.plan.types import Generation, Plan


def steps_of(plan: Plan) -> tuple[tuple[Step, ...], str]:
    """Return the steps of `up`, and what to say if there are none."""
    from jobctl.jobs import job_of_name, refuse_target
    from jobctl.jobspec.deploy.carry_out import wanted
    from jobctl.jobspec.deploy.local import Local
    from jobctl.jobspec.deploy.observed import phase
    from jobctl.jobspec.deploy.reconcile import reconcile

    refuse_target(plan)
    deployer = Local(job_of_name(plan.job), plan)
    observed = deployer.observe()
    now, _ = phase(observed)
    return reconcile(wanted(deployer, plan), observed), f"nothing to do: job `{plan.job}` is {now} as the spec says"


def explain_plan(plan: Plan) -> None:
    """Print ranks, roles, devices, endpoints and environment of every node."""
    from jobctl.jobspec.plan.generation import first_generation

    generation = first_generation(plan)
    meeting = generation.rendezvous
    console.out(f"job {plan.job}: {plan.framework} {plan.mode}, target {plan.target}, run id {generation.run_id}")
    console.out(f"rendezvous {meeting.address}:{meeting.port} (the first free port from here on), id {meeting.id}")
    if plan.checkpoint:
        console.out(f"checkpoint {plan.checkpoint.dir}")
    console.out()
    console.out(console.table(("NODE", "ROLE", "HOST", "ADDRESS", "RANKS", "DEVICES"), _rows(plan, generation)))
    for node in plan.nodes[:1]:
        console.out("\nenv of every node:")
        for name, value in node.container.env:
            console.out(f"  {name}={value}")
        for name in node.launch.secrets:
            console.out(f"  {name}=<secret>")
        console.out("each process runs:\n  " + " ".join(node.launch.command))


def _rows(plan: Plan, generation: Generation) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    first = 0
    for node, member in zip(plan.nodes, generation.members, strict=True):
        last = first + member.nproc - 1
        ranks = str(first) if first == last else f"{first}-{last}"
        devices = ", ".join(node.launch.devices)
        rows.append((str(node.index), node.role, node.host.name, node.host.address, ranks, devices))
        first = last + 1
    return rows
