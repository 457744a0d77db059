"""The key `data`: folders that are sent to hosts, and stay there."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.parts import absolute_target
from jobctl.jobspec.spec.scalars import Form, Text, bad


def _on_this_machine(value: str) -> str:
    if re.match(r"[^/:]+:", value):
        hint = "mount it with `volumes`, or name a folder of this machine"
        raise bad("data-on-host", f"`{value}` is on another host, from which jobctl cannot send data yet", hint)
    return value


class Data(Part):
    """A folder of data to send to every host. Hosts keep it between jobs, and containers may only read it."""

    source: Annotated[Text, AfterValidator(_on_this_machine)] = Field(
        description="The folder on this machine, relative to the spec.", examples=["/data/imagenet"]
    )
    target: Annotated[Text, AfterValidator(absolute_target), Form("absolute path")] = Field(
        description="The path in the container.", examples=["/data"]
    )
    hosts: Literal["all"] = Field(
        default="all", exclude_if=lambda value: value == "all", description="The hosts that get it.", examples=["all"]
    )
