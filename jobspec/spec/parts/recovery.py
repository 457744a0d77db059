"""The block `recovery`."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

import re
import warnings
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.scalars import DURATION, SOME, Duration, Form, Int, Text, at_least, bad, positive


def _regex(value: str) -> str:
    try:
        with warnings.catch_warnings():  # of what may have another meaning in a Python to come
            warnings.simplefilter("ignore")
            re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise bad("bad-regex", f"`{value}` is not a regular expression: {error}") from None
    return value


class Rule(Part):
    """What to do about a failure that matches. If both `log` and `exit` are given, both must match."""

    event: Literal["straggler"] | None = Field(
        default=None,
        description="Instead of a failure: a node that makes the others wait. It takes `do: exclude_host`.",
        examples=["straggler"],
    )

    log: Annotated[Text, AfterValidator(_regex), Form("regular expression, as in Python")] | None = Field(
        default=None,
        description="A pattern to search for in the last lines of the log. Default: any log.",
        examples=["CUDA error: uncorrectable ECC"],
    )
    exit: Annotated[Int, AfterValidator(at_least(0, "an exit code", 255))] | None = Field(
        default=None, description="The exit code to match; 128 + n for signal n. Default: any exit code.", examples=[3]
    )
    do: Literal["fail", "restart", "exclude_host"] = Field(
        description="What to do: end the job, restart it, or restart it without the host that failed.",
        examples=["exclude_host"],
    )

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if self.event is None and not self.log and self.exit is None:
            raise bad("empty-rule", "a rule needs `log`, `exit` or `event`")
        if self.event is not None and (self.log is not None or self.exit is not None):
            raise bad(
                "event-of-failure", "a straggler has not failed: it has neither `log` nor `exit`", "write two rules"
            )
        if self.event is not None and self.do != "exclude_host":
            raise bad("event-of-failure", "what can be done about a straggler is `exclude_host`")
        return self


HangTimeout = Annotated[
    float | None,
    BeforeValidator(
        short.hang_timeout,
        json_schema_input_type=Annotated[str, Field(pattern=f"^(off|auto|{SOME}{DURATION})$")] | None,
    ),
    Form("`off`, `auto` or a duration"),
]


def _module(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise bad("bad-value", f"`{value}` is not the name of a Python module", "write it as after `import`")
    return value


class StandbyPart(Part):
    """What waits, imported, for the next generation to start."""

    modules: (
        tuple[
            Annotated[
                Text,
                AfterValidator(_module),
                Form("string", {"type": "string", "pattern": r"^[^\s\d.-][^\s.-]*(\.[^\s\d.-][^\s.-]*)*$"}),
            ],
            ...,
        ]
        | None
    ) = Field(
        default=None,
        alias="import",
        description="The modules to import beside the framework. Default: what the framework itself imports later.",
        examples=[["torchvision", "transformers"]],
    )


class Recovery(Part):
    """What happens when something fails."""

    max_restarts: Annotated[Int, AfterValidator(at_least(0, "`recovery.max_restarts`"))] = Field(
        default=3, description="How many times a failure may restart the job.", examples=[10]
    )
    window: Annotated[Duration, AfterValidator(positive("`recovery.window`"))] | None = Field(
        default=None, description="Count restarts over this period only. Default: the whole run.", examples=["24h"]
    )
    on_host_loss: Literal["replace", "shrink", "wait", "fail"] | None = Field(
        default=None,
        description="What to do when a host is lost. Default: `replace` if the hosts file has spares, `shrink` if `nodes` is a range, `wait` if neither.",
        examples=["wait"],
    )
    host_timeout: Annotated[Duration, AfterValidator(positive("`recovery.host_timeout`"))] = Field(
        default=30.0, description="How long a host may be silent before it counts as lost.", examples=["1m"]
    )
    hang_timeout: HangTimeout = Field(
        default=None,
        description="How long processes may make no progress before they are restarted. `auto` learns the time from the job's own steps. Default: `off`.",
        examples=["10m"],
    )
    standby: Annotated[
        StandbyPart | None,
        BeforeValidator(short.standby, json_schema_input_type=StandbyPart | Literal["auto", "off"] | None),
        Form("`auto`, `off` or mapping"),
    ] = Field(
        default_factory=StandbyPart,
        description="Whether processes that have imported the framework wait beside those that train, so that a restart need not import it. `off` also keeps spare hosts cold. Default: `auto`.",
        examples=["off"],
    )
    wait_timeout: Annotated[Duration, AfterValidator(positive("`recovery.wait_timeout`"))] | None = Field(
        default=None, description="How long to wait for hosts before the job fails. Default: for ever.", examples=["2h"]
    )
    max_duration: Annotated[Duration, AfterValidator(positive("`recovery.max_duration`"))] | None = Field(
        default=None, description="How long the job may run before it is stopped. Default: for ever.", examples=["72h"]
    )
    rules: tuple[Rule, ...] = Field(
        default=(),
        description="What to do about particular failures. The first rule that matches decides.",
        examples=[[{"exit": 3, "do": "fail"}]],
    )
