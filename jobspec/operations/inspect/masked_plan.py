"""A plan as people may see it: what a user wrote into it and looks secret is hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from jobctl.jobspec.spec.sensitive import masked, masked_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobctl.jobspec.plan.sent import Build
    from jobctl.jobspec.plan.types import ClusterOptions, Container, Launch, Node, Plan, Service, SlurmOptions

    V = TypeVar("V")


def masked_plan(plan: Plan) -> Plan:
    """Return the plan without values of variables, arguments and options that look secret."""
    return replace(
        plan,
        nodes=tuple(map(_node, plan.nodes)),
        spares=tuple(map(_node, plan.spares)),
        services=tuple(map(_service, plan.services)),
        cluster=plan.cluster and _cluster(plan.cluster),
        slurm=plan.slurm and _slurm(plan.slurm),
        build=plan.build and _build(plan.build),
    )


def _node(node: Node) -> Node:
    return replace(node, container=_container(node.container), launch=_launch(node.launch))


def _service(service: Service) -> Service:
    return replace(service, container=_container(service.container), command=_words(service.command))


def _container(container: Container) -> Container:
    return replace(container, env=_pairs(container.env), options=_words(container.options))


def _launch(launch: Launch) -> Launch:
    return replace(
        launch,
        start=_words(launch.start),
        command=_words(launch.command),
        env=_pairs(launch.env),
        setup=_words(launch.setup),
        process_env=_pairs(launch.process_env),
        elsewhere=_words(launch.elsewhere),
    )


def _cluster(options: ClusterOptions) -> ClusterOptions:
    return replace(options, labels=_pairs(options.labels), annotations=_pairs(options.annotations))


def _slurm(options: SlurmOptions) -> SlurmOptions:
    return replace(options, options=_words(options.options))


def _build(build: Build) -> Build:
    return replace(build, args=_pairs(build.args))


def _pairs(pairs: Iterable[tuple[str, V]]) -> tuple[tuple[str, V], ...]:
    return tuple((name, masked(name, value)) for name, value in pairs)


def _words(words: tuple[V, ...]) -> tuple[V, ...]:
    return tuple(masked_words(words))
