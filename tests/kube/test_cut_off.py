"""What a command that was refused or cut off in the middle leaves in a cluster, and how the next one goes on."""

from __future__ import annotations

from typing import Any

from tests.kube.server import ApiServer
from tests.kube.world import World

UP = ("up", "--target", "kubernetes")


def test_a_down_that_was_refused_is_done_by_the_next_one(jobctl: Any, world: World, api: ApiServer) -> None:
    jobctl(*UP)
    api.fail("delete", "jobs", 500)
    ran = jobctl("down", "resnet")
    assert (ran.code, ran.err.splitlines()[-2]) == (4, "error: job `resnet` is down, but not on objects")
    again = jobctl("down", "resnet")
    assert (again.code, api.names(), "resnet" in jobctl("list").out) == (0, [], False)
