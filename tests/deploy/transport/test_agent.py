"""Keys that are in an agent are offered to hosts as `ssh` offers them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import paramiko
import pytest
from paramiko.common import byte_chr

from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.inventory import SshOptions
from jobctl.jobspec.deploy.transport.ssh import Ssh
from jobctl.jobspec.spec.hosts import Host
from tests.tools.loopback import Loopback

ASKED, TOLD, SIGN, SIGNED = 11, 12, 13, 14  # messages of the agent's protocol (draft-miller-ssh-agent)


class Agent:
    """An agent at a socket, and the keys that it was asked to sign with."""

    def __init__(self, place: Path, keys: Sequence[paramiko.PKey]) -> None:
        self.place, self.keys = place, keys
        self.signed: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            line, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line, line.makefile("rb") as stream:
            while head := stream.read(4):
                asked = paramiko.Message(stream.read(struct.unpack(">I", head)[0]))
                answer = self._answer(ord(asked.get_byte()), asked).asbytes()
                line.sendall(struct.pack(">I", len(answer)) + answer)

    def _answer(self, kind: int, asked: paramiko.Message) -> paramiko.Message:
        answer = paramiko.Message()
        if kind == ASKED:
            answer.add_byte(byte_chr(TOLD))
            answer.add_int(len(self.keys))
            for key in self.keys:
                answer.add_string(key.asbytes())
                answer.add_string("a key")
            return answer
        assert kind == SIGN
        wanted, data = asked.get_binary(), asked.get_binary()
        self.signed.append(wanted)
        key = next(one for one in self.keys if one.asbytes() == wanted)
        answer.add_byte(byte_chr(SIGNED))
        answer.add_string(key.sign_ssh_data(data).asbytes())
        return answer


@pytest.fixture
def agent(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> Agent:
    monkeypatch.setenv("HOME", str(server.folder))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(server.folder / "elsewhere"))
    return Agent(server.folder / "agent", [paramiko.ECDSAKey.generate(), server.keys.user])


def printed(server: Loopback, *lines: str) -> bytes:
    config = server.folder / "config"
    common = [f"HostName 127.0.0.1\nPort {server.port}\nUser anybody\nUserKnownHostsFile {server.known_hosts}"]
    config.write_text("\n".join(["Host h1", *lines, *common, ""]))
    there = Ssh(Host("h1"), SshOptions(config))
    try:
        return there.run(["echo", "one"]).out
    finally:
        there.close()


def public(server: Loopback) -> str:
    return f"{server.keys.user.get_name()} {server.keys.user.get_base64()} of mine\n"


@pytest.mark.parametrize("kind", ["encrypted", "public", "OpenSSH's"])
def test_of_an_agents_keys_those_that_are_named_are_offered(
    server: Loopback, agent: Agent, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent.place))
    file = server.folder / "key"
    if kind == "public":
        file = file.with_suffix(".pub")
        file.write_text(public(server))
    elif kind == "encrypted":
        server.keys.user.write_private_key_file(str(file), password="secret")
        file.with_suffix(".pub").write_text(public(server))
    else:  # without a file of the public one
        file.write_text(_of_openssh(server.keys.user.asbytes()))
    assert printed(server, f"IdentityFile {file}", "IdentitiesOnly yes") == b"one\n"
    assert agent.signed == [server.keys.user.asbytes()]


def _of_openssh(public_key: bytes) -> str:
    """Return the beginning of an encrypted key as OpenSSH writes it, as far as it is not encrypted."""
    import base64

    parts = paramiko.Message()
    for text in ("aes256-ctr", "bcrypt", "salt"):
        parts.add_string(text)
    parts.add_int(1)
    parts.add_string(public_key)
    packed = base64.b64encode(b"openssh-key-v1\0" + parts.asbytes()).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{packed[:70]}\n{packed[70:]}\n-----END OPENSSH PRIVATE KEY-----\n"


@pytest.mark.parametrize("said", ["~/agent", "%d/agent", "$MY_AGENT", "${MY_AGENT}", "${HOME}/agent"])
def test_the_configuration_names_the_agent(
    server: Loopback, agent: Agent, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("MY_AGENT", str(agent.place))
    assert printed(server, f"IdentityAgent {said}") == b"one\n"
    assert agent.signed == [key.asbytes() for key in agent.keys][: len(agent.signed)]


@pytest.mark.parametrize("named", ["IdentityFile none", ""])
def test_where_only_named_keys_count_and_none_is_there_the_agent_signs_with_none(
    server: Loopback, agent: Agent, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent.place))
    with pytest.raises(HostError) as caught:
        printed(server, named, "IdentitiesOnly yes")
    assert (caught.value.code, agent.signed) == ("key-refused", [])


@pytest.mark.parametrize("said", ["none", "~/gone", "$NO_SUCH_AGENT"])
def test_an_agent_that_is_not_there_offers_nothing(
    server: Loopback, agent: Agent, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent.place))
    with pytest.raises(HostError) as caught:
        printed(server, f"IdentityAgent {said}")
    assert (caught.value.code, agent.signed) == ("key-refused", [])
