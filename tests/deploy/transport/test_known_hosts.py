"""Files of known hosts with lines that nobody can read: they cost no command its connection, and let nobody in."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from jobctl.jobspec.deploy.model.errors import DeployWarning, HostError
from jobctl.jobspec.deploy.transport.known_hosts import KnownHosts, add
from jobctl.jobspec.deploy.transport.ssh_config import known_hosts_files
from tests.tools.loopback import Loopback, loopback

OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIJaXNEvDwvHbAfnhEHRhxRwSh9dCIXwgRoB5fCLVfjbl"
HALF = OTHER[:-7]
DSS = "AAAAB3NzaC1kc3MAAAAB"  # as much of a key of a kind that Paramiko does not know as is looked at


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Loopback]:
    with loopback(tmp_path) as made:
        yield made


pytestmark = pytest.mark.filterwarnings("ignore::jobctl.jobspec.deploy.model.errors.DeployWarning")


@contextlib.contextmanager
def warned(*places: str) -> Iterator[None]:
    """Expect a warning of each place, FILE:LINE, and no other."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    assert [str(one.message).split(" ")[0] for one in found if one.category is DeployWarning] == list(places)


def refusal(server: Loopback, *lines: str, accept_new: bool = False) -> HostError:
    with server.client(*lines, accept_new=accept_new) as there, pytest.raises(HostError) as caught:
        there.run(["true"])
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    "line",
    [
        f"h9 ssh-ed25519 {HALF}",  # its base64 is cut off
        f"h9 ssh-ed25519 {OTHER[:-8]}",  # its key is cut off
        f"h9 ssh-ed25519 {OTHER}h200 ssh-ed25519 {OTHER}",  # two lines, which together are base64
        f"h9 ssh-rsa {OTHER}",  # of another kind
        f"h9 ssh-ed2551 {OTHER}",
        "h9 ssh-ed25519",
        "h9 \N{SNOWMAN} \udcff",
        f"|1|c2FsdA==|bWFj|x ssh-ed25519 {OTHER}",  # a hash of three parts
        f"|1|c2F|bWFj ssh-ed25519 {OTHER}",
        f"@trusted h9 ssh-ed25519 {OTHER}",
    ],
)
def test_a_line_that_cannot_be_read_costs_nobody_a_connection(server: Loopback, line: str) -> None:
    text = f"# of mine\n\n{line}\n{server.line()}"
    server.known_hosts.write_text(text, encoding="utf-8", errors="surrogateescape")
    with warned(f"{server.known_hosts}:3"), server.client() as there:
        assert there.run(["echo", "one"]).out == b"one\n"
    with warned(), server.client() as there:  # it is told once
        assert there.run(["echo", "one"]).out == b"one\n"


@pytest.mark.parametrize(
    "line",
    [f"@cert-authority *.lab ssh-ed25519 {OTHER}", f"@revoked h9 ssh-ed25519 {OTHER}", f"h9 ssh-dss {DSS}", "# h9"],
)
def test_lines_that_are_none_of_ours_are_no_damage(server: Loopback, line: str) -> None:
    server.known_hosts.write_text(f"{line}\n{server.line()}")
    with warned(), server.client() as there:
        assert there.run(["echo", "one"]).out == b"one\n"


@pytest.mark.parametrize("accept_new", [False, True])
@pytest.mark.parametrize("glued", ["", f"h9 ssh-ed25519 {OTHER}"])
@pytest.mark.parametrize("hashed", [False, True])
def test_nobody_gets_in_because_the_line_of_a_host_is_damaged(
    server: Loopback, accept_new: bool, glued: str, hashed: bool
) -> None:
    name = paramiko.HostKeys.hash_host(server.name) if hashed else server.name
    text = f"{glued}{name} ssh-ed25519 {HALF}\n"
    server.known_hosts.write_text(text)
    error = refusal(server, accept_new=accept_new)
    place = f"{server.known_hosts}:1"
    assert error.message == f"h1: its host key is not known here: {place}, which may be its line, cannot be read"
    assert (error.code, server.known_hosts.read_text()) == ("host-key-unknown", text)


@pytest.mark.parametrize("strict", ["accept-new", "yes"])
def test_a_key_of_the_plain_name_counts_at_every_port_as_for_openssh(server: Loopback, strict: str) -> None:
    """Also where the line is hashed; nothing is written down then."""
    plain = server.name.split("]")[0].removeprefix("[")
    for name in (plain, paramiko.HostKeys.hash_host(plain)):
        text = server.line().replace(server.name, name)
        server.known_hosts.write_text(text)
        with server.client(f"StrictHostKeyChecking {strict}") as there:
            assert there.run(["echo", "one"]).out == b"one\n"
        assert server.known_hosts.read_text() == text


def test_another_key_of_the_plain_name_keeps_no_new_port_out(server: Loopback) -> None:
    """That is of another server there. A key of this port keeps one out that is another, whatever the plain name has."""
    plain = server.name.split("]")[0].removeprefix("[")
    server.known_hosts.write_text(f"{plain} ssh-ed25519 {OTHER}\n")
    assert refusal(server).code == "host-key-unknown"
    with server.client(accept_new=True) as there:
        assert there.run(["echo", "one"]).out == b"one\n"
    server.known_hosts.write_text(f"{server.name} ssh-ed25519 {OTHER}\n{server.line().replace(server.name, plain)}")
    assert refusal(server, accept_new=True).code == "host-key-changed"


def test_a_damaged_line_of_another_host_keeps_no_new_one_out(server: Loopback) -> None:
    text = f"{server.name}0 ssh-ed25519 {HALF}\n{paramiko.HostKeys.hash_host('h9')} ssh-ed25519 {HALF}\n"
    server.known_hosts.write_text(text)
    with server.client(accept_new=True) as there:
        assert there.run(["echo", "one"]).out == b"one\n"
    assert server.known_hosts.read_text() == text + server.line()


@pytest.mark.parametrize("accept_new", [False, True])
def test_a_file_that_cannot_be_read_keeps_no_known_host_out_and_lets_no_new_one_in(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept_new: bool
) -> None:
    closed, read = tmp_path / "closed", Path.read_text
    closed.touch()

    def refuse(path: Path, *how: Any, **also: Any) -> str:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *how, **also)

    monkeypatch.setattr(Path, "read_text", refuse)
    server.config = f"UserKnownHostsFile {server.known_hosts} {closed}"
    place = f"its host key is not known here: {closed}, which may have its line, cannot be read"
    with warned(str(closed)):
        error = refusal(server, accept_new=accept_new)
    assert (error.code, error.cause) == ("host-key-unknown", place)
    server.known_hosts.write_text(server.line())
    with server.client(accept_new=accept_new) as there:
        assert there.run(["echo", "one"]).out == b"one\n"


def test_a_new_key_that_cannot_be_written_down_is_refused(server: Loopback) -> None:
    server.known_hosts.mkdir()
    error = refusal(server, "StrictHostKeyChecking no")
    assert error.message == f"h1: its new host key cannot be written into {server.known_hosts}: Is a directory"
    assert error.code == "host-key-unknown"


@pytest.mark.parametrize("known", [False, True])
def test_a_revoked_key_is_always_refused(server: Loopback, known: bool) -> None:
    text = (server.line() if known else "") + f"@revoked {server.line('*')}"
    server.known_hosts.write_text(text)
    assert refusal(server, "StrictHostKeyChecking no", accept_new=True).code == "host-key-revoked"
    assert server.known_hosts.read_text() == text


def test_a_changed_key_is_refused_and_a_hashed_name_known(server: Loopback) -> None:
    server.known_hosts.write_text(f"{server.name} ssh-ed25519 {OTHER}\n")
    assert refusal(server, accept_new=True).code == "host-key-changed"
    server.known_hosts.write_text(server.line(paramiko.HostKeys.hash_host(server.name)))
    with server.client() as there:
        assert there.run(["echo", "one"]).out == b"one\n"


@pytest.mark.parametrize(
    ("names", "known"),
    [
        ("*", True),
        ("[127.0.?.1]:*", True),
        ("h9,[127.*", True),
        ("*,![127.0.0.1]*", False),
        ("![127.0.0.1]*", False),
        ("[127.0.0.1]", False),
        ("[1]*,[2-9]*", False),  # brackets are no pattern
    ],
)
def test_a_pattern_is_the_name_of_many_hosts(server: Loopback, names: str, known: bool) -> None:
    """As in /etc/ssh/ssh_known_hosts of a cluster. A host that it names has a changed key, not a new one."""
    server.known_hosts.write_text(server.line(names))
    assert list(KnownHosts([server.known_hosts]).keys(server.name)) == [server.keys.host.get_name()] * known
    server.known_hosts.write_text(f"{names} ssh-ed25519 {OTHER}\n")
    if known:
        assert refusal(server, accept_new=True).code == "host-key-changed"
    else:
        with server.client(accept_new=True) as there:
            assert there.run(["echo", "one"]).out == b"one\n"


def test_a_damaged_line_with_a_pattern_may_be_that_of_a_host(server: Loopback) -> None:
    server.known_hosts.write_text(f"[127.* ssh-ed25519 {HALF}\n")
    assert refusal(server, accept_new=True).code == "host-key-unknown"


@pytest.mark.parametrize(
    ("named", "files"),
    [
        ("/x/%k/%h-%p /y/%n%%", ["/x/alias/10.0.0.5-2222", "/y/h1%"]),
        ("%d/keys ~/keys", [f"{Path.home()}/keys"] * 2),
        ("none", ["/dev/null"]),
        ("/x/%z", ["/x/%z"]),
    ],
)
def test_files_of_known_hosts_are_named_as_for_ssh(named: str, files: list[str]) -> None:
    connection = SimpleNamespace(
        host="10.0.0.5", original_host="h1", port=2222, user="ml", ssh_config={"hostkeyalias": "alias"}
    )
    assert [str(path) for path in known_hosts_files(named, connection)] == files


def test_where_no_file_is_to_know_a_host_none_is_written(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server.config = "UserKnownHostsFile none"
    with server.client("StrictHostKeyChecking no") as there:
        assert there.run(["echo", "one"]).out == b"one\n"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("h9 rsa x\n", "h9 rsa x\n"), ("h9 rsa x", "h9 rsa x\n"), (None, "")],
)
def test_a_new_key_gets_a_line_of_its_own(server: Loopback, before: str | None, after: str) -> None:
    path = server.folder / "new" / "known_hosts"
    if before is not None:
        path.parent.mkdir()
        path.write_text(before)
    add(path, server.name, server.keys.host)
    assert path.read_text() == after + server.line()
    assert list(KnownHosts([path]).keys(server.name).values()) == [server.keys.host]


def test_of_several_keys_of_a_kind_the_first_counts(server: Loopback) -> None:
    server.known_hosts.write_text(f"h9 ssh-ed25519 {OTHER}\n{server.line('h8,h9')}{server.line('h7')}")
    found = KnownHosts([server.known_hosts, server.folder / "none"])
    assert list(found.keys("h9")) == ["ssh-ed25519", server.keys.host.get_name()]
    assert (list(found.keys("h8")), list(found.keys("h6"))) == ([server.keys.host.get_name()], [])


def test_a_command_tells_it_as_its_other_warnings(tmp_path: Path) -> None:
    (tmp_path / "known").write_text("h9 ssh-ed25519 damaged\n")
    code = (
        "import sys, pathlib; from jobctl.main import _tell_warnings; _tell_warnings();"
        "from jobctl.jobspec.deploy.transport.known_hosts import KnownHosts; KnownHosts([pathlib.Path(sys.argv[1])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "known")], capture_output=True, text=True, check=True
    )
    assert done.stderr == (f"warning: {tmp_path}/known:1 cannot be read and is passed over: correct or remove it\n")
