"""Values as launchers write them, and what is no such value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobctl.jobspec.importers import values
from jobctl.jobspec.importers.names import is_secret, looks_secret


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.node_range, "2:4", (2, 4)),
        (values.node_range, "4", (4, 4)),
        (values.ids, "0-2, 5", (0, 1, 2, 5)),
        (values.seconds, "90", "90s"),
        (values.seconds, "120", "2m"),
        (values.seconds, "121", "121s"),
        (values.seconds, "1234567", "1234567s"),
        (values.etcd_endpoints, "http://a,b:2380/", ("a:2379", "b:2380")),
        (values.endpoint, "tcp://10.0.0.1:29500", ("10.0.0.1", 29500)),
        (values.truth, "Off", False),
        (values.span, (0, 1, 2, 5), "0-2,5"),
    ],
)
def test_values_are_read(read: Callable[[Any], Any], text: object, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (values.node_range, "4:2"),
        (values.positive, "0"),
        (values.port, "65536"),
        (values.ids, "0,0"),
        (values.seconds, "-1"),
        (values.endpoint, "a/b:1"),
        (values.host_names, "-a"),
    ],
)
def test_what_is_no_such_value_says_why(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        read(text)


def test_a_host_that_is_named_twice_takes_two_nodes_and_loopbacks_none() -> None:
    found = values.host_lines(["a", "b", "a", "127.0.0.1", "localhost", "::1"])
    assert [(line.name, line.nodes) for line in found] == [("a", 2), ("b", 1)]


LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    ("secret", "name", "value"),
    [
        *(
            (True, name, "x")
            for name in ("PGPASSWORD", "MYSQL_PWD", "dbPassword", "HFTOKEN", "S3_SECRETKEY", "API_KEY")
        ),
        *((False, name, "x") for name in ("TOKENIZERS_PARALLELISM", "PASSWORD_FILE", "MONKEY", "COMPASS", "PWD")),
        *((True, "X", f"{begin}{LETTERS}") for begin in ("hf_", "ghp_", "a=glpat-", "sk-", "github_pat_")),
        (True, "X", f"git+https://{LETTERS}@host/repository"),
        (True, "X", "postgres://me:x@host/db"),
        *((False, "X", text) for text in ("hf_a_model_with_a_long_name", "ssh://git@host/x", f"sk-learn-{LETTERS}")),
    ],
)
def test_secrets_are_known_by_their_names_and_by_what_they_are(secret: bool, name: str, value: str) -> None:
    assert is_secret(name, value) == secret
    assert name != "X" or looks_secret(f"pip install {value}") == secret
