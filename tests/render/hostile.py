"""Values that break careless quoting, and a plan with them in every place that a user fills."""

from __future__ import annotations

from dataclasses import replace

from jobctl.jobspec.plan.sent import Code
from jobctl.jobspec.plan.types import Mount, Plan
from tests.render.plans import node, plan, with_container, with_launch

VALUES = (
    "",
    " ",
    "trailing  ",
    "\ttab\t",
    "$",
    "$$",
    "$HOME ${HOME} $(id) $$HOME ${X:-y} ${X:?z}",
    "`id`",
    "'",
    "''\"\"'",
    '"',
    '\\"',
    "\\",
    "\\\\n\\",
    "line\nfeed",
    "\n",
    "ends in a line feed\n",
    "carriage\rreturn\r\n",
    "; rm -rf /; # & | > < * ? ~ ! ( ) [ ] { }",
    "~/x",
    "*",
    "!",
    "{{ 7 * 7 }} {% raw %} {# no #}",
    "- --flag",
    "--leading=dashes",
    "-e",
    "#comment",
    "key: value",
    "&anchor *alias !tag |",
    "%TAG",
    "null",
    "no",
    "0755",
    "1.10",
    "22:22",
    "=",
    "a=b=c",
    "näïve ☃ 漢字 \u0627\u0644",
    "\U0001f600 astral \U0010fffd",
    "\x85next line\u2028line\u2029paragraph",
    "\ufeffbyte order mark\ufeff",
    "\u00a0\u200b\u202e",
    "\x01\x07\x08\x0b\x0c\x1b[31m\x1f\x7f\x80\x9f",
    "\ufffe\uffff\ufffd",
    "x" * 1000,
)

# Bytes that are not UTF-8, as they come from the environment; YAML cannot hold them, a script can.
BYTES = "not utf-8: \udcff\udc80"

# Docker and Compose clean paths, so these keep to what a file may be called.
PATH = "/data/$x ${HOME} `y` \"z\" 'q' ; , = {{ 1 }} é \u2028 \U0001f600 -- \\ #%~"


def env_of(values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((f"HOSTILE_{index}", value) for index, value in enumerate(values))


def hostile_plan(target: str, values: tuple[str, ...] = VALUES) -> Plan:
    """A job with hostile environment, arguments, paths, labels and working directory."""
    base = with_container(
        node(*((0, "localhost", "127.0.0.2") if target == "local" else ())),
        env=env_of(values),
        labels=(("jobctl.job", "resnet"), ("jobctl.owner", VALUES[6]), ("jobctl.version", "0.1.0")),
        mounts=(Mount("bind", PATH, PATH + "/target", read_only=True),),
    )
    base = with_launch(
        base,
        command=("python3", "-c", *values),
        env=env_of(values),
        setup=values,
        workdir=PATH,
    )
    return replace(plan(base, target=target), code=Code("/home/ada", PATH, ()))
