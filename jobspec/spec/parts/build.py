"""The key `build`: what the image is made from, as in Compose."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.base import Part, without_extensions
from jobctl.jobspec.spec.names import ENV_NAME
from jobctl.jobspec.spec.scalars import Form, Text, bad


def _on_this_machine(value: str) -> str:
    if "://" in value or re.match(r"[^/]+@[^/]+:", value):
        hint = "clone it, and name the folder"
        raise bad("build-context", f"`{value}` is not a folder of this machine, and jobctl builds from no other", hint)
    return value


def _arg(name: str) -> str:
    if not re.fullmatch(ENV_NAME, name):
        hint = "letters, digits and `_`, no digit first"
        raise bad("bad-variable", f"`{name}` is not a valid name for a build argument", hint)
    return name


Context = Annotated[Text, AfterValidator(_on_this_machine), Form("string", {"pattern": "^(?!.*://)(?![^/]+@[^/]+:)"})]


class Build(Part):
    """What the image is made from. jobctl tags it by its content, so that an unchanged one is made once."""

    context: Context = Field(
        default=".",
        description="The folder that `COPY` copies from, relative to the spec. `.dockerignore` there leaves files out.",
        examples=["docker"],
    )
    dockerfile: Text = Field(
        default="Dockerfile", description="The Dockerfile, relative to `context`.", examples=["docker/train.Dockerfile"]
    )
    args: Annotated[
        dict[Annotated[str, AfterValidator(_arg)], Text],
        BeforeValidator(
            without_extensions,
            json_schema_input_type=dict[Annotated[str, Field(pattern=f"^{ENV_NAME}$")], Text | None]
            | list[Annotated[str, Field(pattern=f"^{ENV_NAME}(=|$)")]],
        ),
        Form("mapping; each value: string or nothing"),
    ] = Field(
        default_factory=dict,
        description="Values of `ARG` in the Dockerfile. An argument without a value takes its value from `up`'s environment. "
        "They stay readable in the image.",
        examples=[{"CUDA": "12.8"}],
    )
    target: Text | None = Field(
        default=None, description="The stage of the Dockerfile to build. Default: the last one.", examples=["runtime"]
    )
    on: Text | None = Field(
        default=None,
        description="The host of the job whose engine builds. Default: this machine.",
        examples=["gpu01"],
    )


BuildOption = Annotated[
    Build, BeforeValidator(short.build, json_schema_input_type=Context | Build), Form("path of the context, or mapping")
]
