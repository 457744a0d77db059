"""The last steps of a generation, also those of nodes that cannot tell them any more. Pure."""

from __future__ import annotations

from dataclasses import field, replace

from jobctl.jobspec.deploy.model.observed import Observed
from jobctl.jobspec.records import dataclass


@dataclass
class LastSteps:
    """Remembers the last step of each node of a generation: whether there was progress is judged by it.

    Often rank 0 alone counts steps, and its host may be the one that is lost.
    """

    generation: str | None = None  # its id
    steps: dict[int, int] = field(default_factory=dict)  # by node

    def complete(self, observed: Observed) -> Observed:
        """Return what was observed, with the last steps of nodes that do not tell theirs."""
        generation = observed.control.generation
        if generation is None:
            return observed
        if generation.rendezvous.id != self.generation:
            self.generation, self.steps = generation.rendezvous.id, {}
        for node in observed.members:
            if node.progress is not None and node.generation == generation.number:
                self.steps[node.node] = node.progress
        silent = {node.node for node in observed.nodes if node.progress is None} & set(self.steps)
        nodes = tuple(replace(n, progress=self.steps[n.node]) if n.node in silent else n for n in observed.nodes)
        return replace(observed, nodes=nodes) if silent else observed
