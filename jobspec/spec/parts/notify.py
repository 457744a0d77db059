"""The block `notify`, of a spec and of the user's configuration file."""

# Without `from __future__ import annotations`: pydantic would have to compile each of them again.

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from jobctl.jobspec.spec import canonical as short
from jobctl.jobspec.spec.base import Part
from jobctl.jobspec.spec.parts.values import Port, Texts, VariableName
from jobctl.jobspec.spec.scalars import Bool, Form, Text, bad

NotifyEvent = Literal["failed", "recovered", "host-lost", "hang", "waiting", "straggler", "succeeded"]

_ADDRESS = r'[^\s@,;:<>()"-][^\s@,;:<>()"]*(@[^\s@,;:<>()"]+)?'


class SecretReference(Part):
    """Where `up` reads a secret that is for jobctl alone."""

    env: VariableName | None = Field(
        default=None,
        description="The variable to read, of `up`'s environment, otherwise of `.env` beside the spec.",
        examples=["SLACK_URL"],
    )
    file: Text | None = Field(
        default=None, description="The file to read, relative to the spec.", examples=["~/.config/jobctl/slack.url"]
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise bad("two-sources", "a secret is read from either `env` or `file`", "keep one")
        return self


SecretName = Annotated[
    SecretReference,
    BeforeValidator(short.secret_name, json_schema_input_type=VariableName | SecretReference),
    Form("name of a secret or of a variable of `up`'s environment, or mapping of `env` or `file`"),
]


def _server(value: str) -> str:
    name, colon, port = value.rpartition(":")
    if "://" in value or "/" in value:
        raise bad("bad-value", f"`{value}` is not the name of a mail server", "write it as `smtp.example.com`")
    if colon and ":" not in name and port.isdecimal():
        raise bad("bad-value", f"`{value}` is a name with a port", f"write `host: {name}` and `port: {port}`")
    return value


def _recipients(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise bad("bad-value", "a mail to nobody", "name an address, such as `to: [you@example.com]`")
    return value


class Smtp(Part):
    """The mail server that takes messages. Without it, this machine's `sendmail` does."""

    host: Annotated[Text, AfterValidator(_server), Form("string", {"pattern": "^(?![^:]*:[0-9]+$)[^/]*$"})] = Field(
        description="The name of the mail server.", examples=["smtp.example.com"]
    )
    port: Port | None = Field(
        default=None,
        description="Its port. Default: 587, with `security: tls` 465, with `security: none` 25.",
        examples=[2525],
    )
    security: Literal["starttls", "tls", "none"] = Field(
        default="starttls", description="How the connection is encrypted.", examples=["tls"]
    )
    user: Text | None = Field(default=None, description="The user to log in as.", examples=["trainer@example.com"])
    password: SecretName | None = Field(
        default=None, description="The name of the secret with the user's password.", examples=["SMTP_PASSWORD"]
    )

    @model_validator(mode="after")
    def _whole_login(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise bad("notify-login", "a mail server needs both `user` and `password`, or neither of them")
        return self


def _address(value: str) -> str:
    if not re.fullmatch(_ADDRESS, value):
        raise bad(
            "bad-value", f"`{value}` is not a valid e-mail address", "write it as `you@example.com`, without a name"
        )
    return value


Address = Annotated[Text, AfterValidator(_address), Form("string", {"minimum": 0, "pattern": f"^{_ADDRESS}$"})]
Addresses = Address | Annotated[list[Address], Field(min_length=1)]


class Email(Part):
    """To whom messages are mailed, and how."""

    to: Annotated[
        tuple[Address, ...],
        BeforeValidator(short.words, json_schema_input_type=Addresses),
        AfterValidator(_recipients),
        Form("e-mail address, or list of them"),
    ] = Field(description="The addresses that get the messages.", examples=["you@example.com"])
    sender: Annotated[Address, Form("e-mail address")] | None = Field(
        default=None,
        alias="from",
        description="The sender's address. Default: the user of `smtp`, otherwise your login name.",
        examples=["jobs@example.com"],
    )
    smtp: Smtp | None = Field(
        default=None,
        description="The mail server to use. Default: this machine's `sendmail`.",
        examples=[{"host": "smtp.example.com", "user": "me", "password": "SMTP_PASSWORD"}],
    )


# What services take that have no format of their own.
_ALSO = {
    "mattermost": "Mattermost takes `format: slack`",
    "rocketchat": "Rocket.Chat takes `format: slack`",
    "discord": "Discord takes `format: slack` if you add `/slack` to its URL",
}


def _format(value: object) -> object:
    hint = _ALSO.get(value.lower().replace(".", "")) if isinstance(value, str) else None
    if hint:
        raise bad("bad-value", f"`{value}` is not a format", hint)
    return value


class Notify(Part):
    """One way in which jobctl tells people what happens to the job, and about which events."""

    on: Annotated[
        tuple[NotifyEvent, ...],
        BeforeValidator(
            short.words, json_schema_input_type=NotifyEvent | Annotated[list[NotifyEvent], Field(min_length=1)]
        ),
        Form(
            "list of `failed`, `recovered`, `host-lost`, `hang`, `waiting` (for a person), `straggler` and `succeeded`"
        ),
    ] = Field(
        default=("failed", "waiting", "succeeded"),
        description="The events to tell. Default: `failed`, `waiting` and `succeeded`.",
        examples=[["failed", "waiting"]],
    )
    webhook: SecretName | None = Field(
        default=None,
        description="The name of the secret with the URL that gets a POST. The URL itself must not be in the spec.",
        examples=["SLACK_URL"],
    )
    format: Annotated[
        Literal["json", "slack", "teams", "ntfy"],
        BeforeValidator(_format, json_schema_input_type=Literal["json", "slack", "teams", "ntfy"]),
    ] = Field(
        default="json",
        description="What the webhook gets. `slack` is also for Mattermost.",
        examples=["slack"],
    )
    from_hosts: Bool = Field(
        default=False,
        description="Whether the webhook's URL may be on the hosts, so that launchers tell while no supervisor watches.",
        examples=[True],
    )
    command: Texts = Field(
        default=(),
        description="A command on the machine of the supervisor. It gets the message as JSON on its stdin.",
        examples=[["/usr/local/bin/page", "--team", "training"]],
    )
    email: (
        Annotated[
            Email,
            BeforeValidator(short.email, json_schema_input_type=Addresses | Email),
            Form("e-mail address, list of them, or mapping"),
        ]
        | None
    ) = Field(default=None, description="The addresses that get a mail.", examples=["you@example.com"])

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [name for name in ("webhook", "command", "email") if getattr(self, name)]
        if len(ways) != 1:
            found = f"has {' and '.join(f'`{way}`' for way in ways)}" if ways else "has none of them"
            raise bad("notify-way", f"an item of `notify` needs one of `webhook`, `command` and `email`, and {found}")
        if not self.on:
            raise bad("bad-value", "an item of `notify` without any event in `on`", "name some, such as `on: [failed]`")
        if self.format != "json" and not self.webhook:
            raise bad("notify-format", "`format` says what a webhook gets", "leave it out")
        if self.from_hosts and not self.webhook:
            message = "`from_hosts` is for webhooks: mail and commands are of the supervisor's machine"
            raise bad("notify-from-hosts", message, "leave it out, or tell by a `webhook` too")
        return self
