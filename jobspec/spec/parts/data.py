"""The key `data`: folders that are sent to hosts, and stay there."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.data_place import place_of_data
from jobctl.jobspec.spec.parts.values import AbsolutePath
from jobctl.jobspec.spec.scalars import Form, Text, bad


def _absolute_on_host(value: str) -> str:
    host, path = place_of_data(value)
    if host is not None and not path.startswith("/"):
        hint = f"`{host}:/path`; a folder of this machine with a colon in its name begins with `./`"
        raise bad("data-on-host", f"the folder on host `{host}` has to be an absolute path, not `{path}`", hint)
    return value


_SOURCE = {"pattern": r"^(?!([^/:@\s]+@)?[^/:@\s]+:(?!/))"}


class Data(Part):
    """A folder of data to send to every host. Hosts keep it between jobs, and containers may only read it."""

    source: Annotated[Text, AfterValidator(_absolute_on_host), Form("string", _SOURCE)] = Field(
        description="The folder on this machine, relative to the spec, or `HOST:/path` on a host that SSH reaches.",
        examples=["gpu01:/data/imagenet"],
    )
    target: AbsolutePath = Field(description="The path in the container.", examples=["/data"])
    hosts: Annotated[
        tuple[Text, ...],
        BeforeValidator(short.data_hosts, json_schema_input_type=Text | Annotated[list[Text], Field(min_length=1)]),
        Form("`all`, or names and ranges of the hosts file"),
    ] = Field(
        default=(),
        exclude_if=lambda value: not value,
        description="The hosts that get it, by default all. The job runs on no others.",
        examples=[["gpu[01-04]", "gpu07"]],
    )
