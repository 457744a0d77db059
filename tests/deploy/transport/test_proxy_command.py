"""A connection through a ProxyCommand: it is what a shell understands, and why it failed is told in its own words."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.model.errors import HostError
from tests.deploy.transport.test_descriptors import RELAY
from tests.tools.loopback import Loopback


def test_a_shell_reads_it(server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAY_TO", str(server.port))
    (tmp_path / "relay.py").write_text(RELAY)
    relay = shlex.join([sys.executable, str(tmp_path / "relay.py")])
    with server.client(f"ProxyCommand {relay} $RELAY_TO {tmp_path}/pid 2>/dev/null") as there:
        assert there.run(["echo", "one"]).out == b"one\n"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("false", "its ProxyCommand ended with code 1"),
        (
            "sh -c 'echo much; echo >&2 first; echo >&2 no such jump host; exit 3' >/dev/null",
            "its ProxyCommand ended with code 3; it printed `no such jump host`",
        ),
        ("sh -c 'exec >&-; exec sleep 9'", "its ProxyCommand has closed its output"),
        ("/none/proxy %h", "/none/proxy: "),
    ],
)
def test_why_it_failed_is_told(server: Loopback, command: str, words: str) -> None:
    with server.client(f"ProxyCommand {command}") as there, pytest.raises(HostError) as caught:
        there.run(["true"])
    assert words in caught.value.message
    assert (caught.value.code, caught.value.hint) == ("unreachable", "try `ssh h1`")
