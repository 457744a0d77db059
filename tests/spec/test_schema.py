"""`jobctl schema` and `jobctl validate` give the same answers: a table of values for each form, tried with each key."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from jsonschema import Draft202012Validator

from jobctl.jobspec.spec.forms import form
from jobctl.jobspec.spec.load import load_text
from jobctl.jobspec.spec.schema import json_schema
from tests.spec.test_reference import FIELDS


class Core(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads as editors do: by the core schema of YAML 1.2, where `2:4` and `off` are text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _tag, _pattern in {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
}.items():
    Core.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), None)
Core.add_constructor(
    "tag:yaml.org,2002:int", lambda _, node: int(node.value, 0 if node.value[1:2] in ("o", "x") else 10)
)

LONG = "a" * 64
STRING = ("x | a b | 5 | 1.5 | true | '' | 'null'", "[a] | {a: b} | [[a]]")
VARIABLE = ("A | _a1", "1A | a-b | 5 | 'a b' | https://a/b | ''")
ONE_LINE = ("gpu | a b | 5", '"" | "a\\nb" | [a] | {a: b}')
NO_INT = "x | 1.5 | '1.5' | true | '' | '01' | 1s | [1] | {a: b}"
FROM_1 = f"0 | -1 | '0' | '-1' | {NO_INT}"
DURATION = (
    "30s | 10m | 1h30m | 1.5s | 500ms | 1d",
    "'' | 30 | '30' | 30sec | 1.5m | 30m1h | s | 5 s | -1s | [30s] | {a: b}",
)
MAPPING = ("{} | {x-a: [1]}", "x | 5 | [a] | [{}] | {nokey: 1}")
KEY = ("a | a/b | a.b/C_d", f"a//b | a/b/c | '' | a b | -a | {LONG} | [a]")
LABELS = (
    "{} | {a/b: c, d: 5, e: '', f: true}",
    f"{{a//b: c}} | {{a: x y}} | {{a: {LONG}}} | {{-a: b}} | x | {{a: [b]}}",
)

# What a key takes and what not, by its words in docs/spec.md. Where those are words alone, they say it all.
FORMS = {
    "`1`": ("1 | '1'", f"2 | '2' | 0 | {NO_INT}"),
    f"string: {'lower-case letters, digits and `-`; a letter first, no `-` last; at most 40 characters'}": (
        "a | a-b9 | 'true'",
        f"A | a- | 9 | 1a | a_b | '' | {'a' * 41} | [a] | {{a: b}}",
    ),
    "string": STRING,
    "path of the context, or mapping": (
        ". | ../a | {} | {context: a} | {args: [A=1, B]} | {args: {A: 1, B: }}",
        "https://a/b | git@host:a/b | {nokey: 1} | {args: [1A=x]} | {args: {a-b: 1}} | {args: x} | [a]",
    ),
    "mapping; each value: string or nothing": (
        "{A: 1, B: x, C: , D: true, x-note: [a]} | {}",
        "{1A: x} | {a-b: x} | {A: [a]} | {A: {b: c}} | x | [[a]]",
    ),
    "list; each item: string": ("[a, 5, true] | [a]", "a | [[a]] | {a: b} | [~]"),
    "string, or list of strings": ("a | [a, b] | 5 | [5, true]", "{a: b} | [[a]] | [~]"),
    'integer, range such as `"2:4"`, or mapping': (
        "4 | '4' | 2:4 | '2:4' | 010 | {min: 1, max: 2}",
        "0 | -1 | x | 0:4 | 4:0 | '2:' | ':4' | 2-4 | 65537 | 1.5 | '0x2' | '' | [1] | {min: 1} | {}",
    ),
    "integer from 1 to 65536": ("1 | '1' | 0x1 | '0x1' | +1", f"65537 | {FROM_1}"),
    "integer from 1 to 4096": ("1 | '1' | 4096", f"4097 | {FROM_1}"),
    "integer from 1 to 65535": ("1 | '1' | 65000", f"65536 | {FROM_1}"),
    "integer from 0 to 255": ("0 | '0' | 255", f"-1 | '-1' | 256 | {NO_INT}"),
    "integer, at least 1": ("1 | '1' | 99", FROM_1),
    "integer, at least 0": ("0 | '0' | 99", f"-1 | '-1' | {NO_INT}"),
    "integer, at least -1": ("-1 | '-1' | 0", f"-2 | '-2' | {NO_INT}"),
    "`KIND`, `KIND:COUNT` or mapping": (
        "cpu | gpu | gpu:8 | 'npu:2' | {kind: gpu, ids: 0-3}",
        "foo | GPU | gpu:0 | 'gpu:' | gpu:x | gpu:-1 | ':8' | 5 | '' | {count: 1} | [gpu]",
    ),
    'device numbers, such as `"0-3,6"`, or a list of integers': (
        "0 | '0' | '0-3,6' | 0-3 | [0, 1] | ['0']",
        "x | -1 | '0-' | '0,' | '' | 1.5 | [] | [-1] | [x] | {a: b}",
    ),
    "mapping": MAPPING,
    "`0`, `1` or `2`": ("0 | '2' | 1", f"3 | '3' | -1 | {NO_INT}"),
    "`1` or `3`": ("1 | '3' | 3", f"2 | '2' | 0 | {NO_INT}"),
    "`true` or `false`": ("true | false | 'true' | FALSE", "yes | off | 'yes' | 1 | '' | [true] | {a: b}"),
    "duration, such as `30s`, `10m` or `1h30m`": (DURATION[0], f"0s | 0h0.0s | {DURATION[1]}"),
    "absolute path, or mapping": ("/c | {dir: /c}", "c | '' | 5 | {} | {dir: c} | [/c]"),
    "`off`, `auto` or a duration": ("off | auto | 10m | 1h30m", "30sec | '' | 0s | 5 | true | on | [off] | {a: b}"),
    "`auto`, `off` or mapping": ("auto | off | {} | {import: [a]}", "on | 5 | [a] | {import: a} | {nokey: 1}"),
    "list; each item: mapping": ("[]", "x | {a: b} | [x] | [{nokey: 1}] | [~]"),
    "regular expression, as in Python": STRING,
    "list; each item: `SOURCE:TARGET`, `SOURCE:TARGET:ro` or mapping": (
        "[/a:/b, 'c:/d:ro', './e:/f:rw'] | [{target: /t, type: tmpfs}] | []",
        "['a'] | ['a:b'] | ['a:/b:rx'] | [':/b'] | ['a:'] | ['a:/b:ro:z'] | [5] | a:/b | [{source: /a}]",
    ),
    "absolute path": ("/a | /a/b", "a | '' | 5 | [/a] | {a: b}"),
    "list of names, or mapping of names to `env` or `file`": (
        "[A] | [{name: A, env: B}] | {A: , B: {env: C}, D: {file: x}, x-a: 1} | [] | {}",
        "[1A] | [a-b] | {1A: } | {A: x} | A | [5] | {A: {nokey: x}} | [{name: 1A}] | [{env: A}]",
    ),
    "path, or mapping": (". | a b | 5 | {source: a}", "{} | [a] | {nokey: a}"),
    "list; each item: `SOURCE:TARGET` or mapping": (
        "[/a:/b, 'host:/a:/c', {source: a, target: /d}] | []",
        "[a] | ['a:b'] | [':/b'] | [{source: a}] | /a:/b | [5]",
    ),
    "`all`, or names and ranges of the hosts file": ("all | [a, b] | a", "[] | {a: b} | [[a]]"),
    "size, such as `512m` or `8g`": (
        "8g | 512m | 16GiB | 16gb | '1.5g' | 1024 | '8 g' | 8G | 1.5 | '1024'",
        "16Gi | 0 | 0.5 | 0g | '' | x | 8gg | -1 | 1.2.3g | g | .5g | [8g] | {a: b}",
    ),
    "number": ("1 | 0.5 | '0.5' | 1e1 | .5 | '1e1'", "0 | '0' | 0.0 | '0e1' | -1 | '-1' | x | '' | 1.2.3 | true | [1]"),
    "mapping; each value: integer (`-1` for no limit), or mapping": (
        "{nofile: 5, core: {soft: 0, hard: -1}, x-a: b} | {nofile: '-1'} | {}",
        "{files: 5} | {nofile: -2} | {nofile: x} | {nofile: {soft: 1}} | [a] | 5",
    ),
    "`self`, `root` or `UID:GID`": (
        "self | root | 1000 | '1000' | '1000:1000' | 0",
        "me | -1 | '1:' | 1.5 | true | '' | [a]",
    ),
    "string: lower-case letters, digits and `-`; at most 63 characters": (
        "a-b | 5 | true",
        f"A | a.b | -a | a- | '' | 1.5 | {LONG} | [a]",
    ),
    "string: letters, digits, `-`, `_` and `.`, a letter or digit at both ends; at most 63 characters": (
        "a.B_c | 5 | 1.5 | true",
        f"-a | a b | a/b | {LONG} | [a]",
    ),
    "string: lower-case letters, digits, `-` and `.`, a letter or digit at both ends": (
        "a.b-c | 5 | 1.5 | true",
        f"A | a_b | -a | a..b | '' | {'a' * 254} | [a]",
    ),
    "`NAME` or `DOMAIN/NAME`": KEY,
    "name, such as `nvidia.com/gpu`": KEY,
    "mapping; each value: string: letters, digits, `-`, `_` and `.`, a letter or digit at both ends; at most 63 characters": LABELS,
    "mapping; each value: amount, such as `16Gi`": (
        "{a/b: 1, c: 500m, d: 16Gi, e: 0.5, f: 1e3} | {}",
        "{a: x} | {a: -1} | {a: 8gb} | {a: ''} | {a//b: 1} | x",
    ),
    "mapping; each value: string": ("{a: x y, b/c: 5} | {}", "{a//b: c} | {a: [b]} | {jobctl.job: x} | x"),
    "`[USER@]HOST`": ("a | u@a.b | 5", f"'' | a b | u@ | a:22 | -a | -1 | {'a' * 254} | [a]"),
    "list of `failed`, `recovered`, `host-lost`, `hang`, `waiting` (for a person), `straggler` and `succeeded`": (
        "failed | [failed, hang]",
        "x | [] | [x] | 5 | '' | {a: b}",
    ),
    "name of a secret or of a variable of `up`'s environment, or mapping of `env` or `file`": (
        "A | {env: A} | {file: x}",
        "a-b | https://a/b | 5 | '' | [A] | {nokey: x} | {env: a-b}",
    ),
    "e-mail address, list of them, or mapping": (
        "a@b | [a@b, c] | {to: a} | a",
        "a b | [] | a@b@c | {to: []} | {} | -1",
    ),
    "e-mail address, or list of them": ("a@b | [a@b, c] | a", "a b | [] | a@b@c | [a b] | {a: b} | -1"),
    "e-mail address": ("a@b | a", "a b | a@b@c | '' | [a] | -1"),
}
# Keys that take less than their words say.
KEYS = {
    "build.context": (". | ../a | 5", "https://a/b | git@host:a/b | [a] | {a: b}"),
    "checkpoint.dir": ("/c", "c | '' | 5 | [/c]"),
    "container.python": ("python3 | a b | 5", "'' | ' ' | [a] | {a: b}"),
    **dict.fromkeys(("container.devices", "container.cap_add"), ("a | [a, b] | 5", "'' | [a, ' '] | {a: b} | [[a]]")),
    "data.source": (". | /a | h:/a | u@h:/a | 5 | ./a:b", "h:a | u@h:a | [a]"),
    "etcd.endpoints": ("a:2379 | [a:1, '[::1]:2379']", "a | 'a:' | a:0 | http://a:1 | '::1:2379' | 5 | [a]"),
    "kubernetes.image_pull_secrets": ("a | [a, b.c] | 5", "A | [a_b] | {a: b} | [~]"),
    "notify.email.smtp": ("{host: a}", "{} | x | [a] | {host: a, nokey: 1}"),
    "notify.email.smtp.host": ("smtp.example.com | '::1' | 5", "a:25 | smtp://a | a/b | [a]"),
    "outputs": ("runs/ | [a, b..c] | 5", "/a | .. | [a/../b] | {a: b} | [[a]]"),
    "ps": ("{servers: 1, trainers: 2}", "{} | {servers: 1} | x | [a]"),
    "recovery.standby.import": ("[a, a.b] | []", "[a-b] | [a..b] | [5] | a | ['']"),
    "slurm.options": ("--nice=5 | [--nice=5]", "{a: b} | [[a]]"),
    "volumes.type": ("bind | volume", "x | 5 | '' | [a]"),  # a `tmpfs` has no source
    "torch.torchrun": ("--tee=3 | [--tee, 3]", "{a: b} | [[a]]"),
    "kubernetes.labels": (LABELS[0], f"{{jobctl.job: x}} | {LABELS[1]}"),
    **dict.fromkeys(("secrets.env", "notify.webhook.env", "notify.email.smtp.password.env"), VARIABLE),
    **{
        f"slurm.{key}": ONE_LINE
        for key in ["python", "partition", "account", "qos", "constraint", "reservation", "gres", "mail"]
    },
    **dict.fromkeys(("stop_grace_period", "paddle.elastic_timeout"), (f"0s | {DURATION[0]}", DURATION[1])),
}

# What only `validate` knows. Rules across fields, of which the values below break some:
ACROSS = {
    "empty-rule",
    "etcd-either",
    "etcd-user",
    "event-of-failure",
    "gloo-outside-paddle",
    "native-recovery-device",
    "nothing-to-run",
    "notify-login",
    "notify-way",
    "operator-framework",
    "operator-unused",
    "other-framework",
    "per-without-command",
    "ps-missing",
    "rejoin-without-ps",
    "shrink-fixed",
    "two-sources",
    "unknown-secret",
}  # fmt: skip
# Numbers that an editor reads as others, upper bounds of what is text, and what no pattern tells.
ONLY_VALIDATE = (
    "nodes: 0x10",
    "nodes: '65537'",
    "nodes: {min: 2, max: 1}",
    "rendezvous: {port: '65536'}",
    "rendezvous: {port: 080}",
    "rendezvous: {port: 80.0}",
    "recovery: {max_restarts: 99999999999999999999}",
    "devices: gpu:9999",
    "devices: {kind: gpu, ids: '1,1'}",
    "stop_grace_period: 99999d",
    "resources: {memory: 99999999t}",
    "resources: {ulimits: {nofile: {soft: 2, hard: 1}}}",
    "recovery: {rules: [{log: '(', do: fail}]}",
    "recovery: {standby: {import: [a+b]}}",
    "data: ['host:a:/b']",
)
# What `validate` takes, and editors ask to quote.
ONLY_VALID = ("name: true", "secrets: {A: {env: true}}", "kubernetes: {resource_name: 5}")

BESIDE = {
    "": "name: demo | framework: torch | script: train.py",
    "nodes": "min: 1 | max: 65536",
    "devices": "kind: gpu",
    "ps": "servers: 1 | trainers: 1",
    "checkpoint": "dir: /c",
    "recovery.rules": "do: fail | exit: 1",
    "volumes": "type: volume | source: a | target: /b",
    "code": "source: .",
    "data": "source: /a | target: /b",
    "resources.ulimits": "soft: 0 | hard: -1",
    "kubernetes.tolerations": "key: a",
    "notify": "webhook: A",
    "notify.email": "to: a",
    "notify.email.smtp": "host: a",
}
ITEMS = ("volumes", "data", "notify", "recovery.rules", "kubernetes.tolerations")
NAMED = {"secrets": "A", "resources.ulimits": "nofile"}


def spec_of(path: str, value: str) -> str:
    """Return a spec in which the key at `path` has this value, and what has to be there beside it."""
    above, _, key = path.rpartition(".")
    beside = [text for text in BESIDE.get(above, "").split(" | ") if text and text.partition(":")[0] != key]
    if path in ("module", "command"):
        beside.remove("script: train.py")
    if above == "notify" and key in ("command", "email"):
        beside = []
    if not above:
        return "\n".join([*beside, *(["mode: ps"] if key == "ps" else []), f"{key}: {value}"])
    block = "{" + ", ".join([*beside, f"{key}: {value}"]) + "}"
    block = f"{{{NAMED[above]}: {block}}}" if above in NAMED else block
    return spec_of(above, f"[{block}]" if above in ITEMS else block)


SCHEMA = Draft202012Validator(json_schema())


def answers(text: str, **environ: str) -> tuple[bool, bool]:
    """Return whether a spec is valid: what `validate` says, but for rules across fields, and what the schema does."""
    loaded = load_text(Path("/none/job.yaml"), text, environ={"C": "c", "B": "b", **environ})
    wrong = {found.code for found in loaded.diagnostics if found.severity == "error"}
    return not wrong - ACROSS, SCHEMA.is_valid(yaml.load(text, Core))


WORDS = {path: form(info.annotation, info.metadata) for path, (_, info) in FIELDS.items()}
FIRST = {words: path for path, words in reversed(WORDS.items())}


def values(path: str) -> tuple[list[str], list[str]]:
    """Return what the key at `path` takes, and what it does not: some of it, if another key has shown it all."""
    words = WORDS[path]
    if path in KEYS or words in FORMS:
        valid, wrong = (text.split(" | ") for text in KEYS.get(path) or FORMS[words])
        return (valid, wrong) if path in KEYS or path == FIRST[words] else (valid[:2], wrong[:3])
    assert re.fullmatch(r"`[\w-]+`(, `[\w-]+`)*( or `[\w-]+`)?", words), f"{words}: what are its values?"
    return re.findall(r"`(.+?)`", words), ["x", "5", "''", "true", "[a]", "{a: b}"]


@pytest.mark.parametrize("path", [path for path in FIELDS if path != "secrets.name"])
def test_the_schema_and_validate_agree(path: str) -> None:
    valid, wrong = values(path)
    found = {value: answers(spec_of(path, value)) for value in (*valid, *wrong)}
    assert found == {**dict.fromkeys(valid, (True, True)), **dict.fromkeys(wrong, (False, False))}
    nothing = answers(spec_of(path, ""))
    assert nothing[0] == nothing[1]


def test_a_variable_may_stand_for_every_scalar() -> None:
    value = "${V:-whatever is longer than any name may be, and has all the signs that it must not have: //}"
    found = {}
    for path in FIELDS.keys() - {"secrets.name"}:
        scalars = [text for text in values(path)[0] if isinstance(yaml.load(text, yaml.BaseLoader), str)]
        for text in scalars[:1]:
            found[path] = answers(spec_of(path, f"'{value}'"), V=yaml.load(text, yaml.BaseLoader))
    assert {path: answer for path, answer in found.items() if answer != (True, True)} == {}
    assert found


@pytest.mark.parametrize("text", ONLY_VALIDATE)
def test_what_only_validate_knows(text: str) -> None:
    assert answers(spec_of("x-a", "1") + "\n" + text) == (False, True)


@pytest.mark.parametrize("text", ONLY_VALID)
def test_what_only_validate_takes(text: str) -> None:
    rest = [line for line in spec_of("x-a", "1").split("\n") if line.partition(":")[0] != text.partition(":")[0]]
    assert answers("\n".join([*rest, text])) == (True, False)


def test_patterns_are_of_ecmascript_too() -> None:
    """Of what begins with `\\`, `new RegExp(…, "u")` takes only these."""
    assert set(re.findall(r"\\\\(.)", json.dumps(SCHEMA.schema).replace(r"\"", "'"))) <= set("$.+sdwnt[]")
