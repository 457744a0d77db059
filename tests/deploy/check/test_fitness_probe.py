"""The probe measures for real: this machine, its storage, and (by PyTorch on its processor) a device."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.check.fitness import probe
from jobctl.jobspec.deploy.check.fitness.host_values import DIGEST
from jobctl.jobspec.deploy.check.fitness.measure import FitnessCheck, measured
from jobctl.jobspec.deploy.check.fitness.network_probe import TcpState, of_tcp, usual_rate
from jobctl.jobspec.deploy.check.fitness.samples import device_values, sample_of
from jobctl.jobspec.deploy.check.fitness.session import ProbeSession, probe_source
from jobctl.jobspec.deploy.check.survey import CheckedHost, Survey
from jobctl.jobspec.deploy.host import facts
from jobctl.jobspec.deploy.host.host_job import HostJob
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.transport.local import LocalTransport
from jobctl.jobspec.frameworks.base import Programs
from jobctl.jobspec.frameworks.programs import text_of, torch_devices
from jobctl.jobspec.spec.hosts import parse_hosts
from tests.deploy.apply.test_executor import TWO


@pytest.fixture
def session() -> Iterator[ProbeSession]:
    channel = LocalTransport().dial([sys.executable, "-c", probe_source(), "token"])
    made = ProbeSession("localhost", channel, "token")
    yield made
    made.close()


def test_processor_and_memory(session: ProbeSession) -> None:
    said = session.ask("compute", 60, seconds=0.02)
    sample = sample_of(said["sample"])
    assert said["digest"] == DIGEST == hashlib.pbkdf2_hmac("sha256", b"jobctl", b"fitness", probe.ROUNDS).hex()
    assert sample.work * 1e6 >= probe.ROUNDS * sample.workers  # each process did a step at least
    assert sample_of(session.ask("memory", 60, seconds=0.02)["sample"]).work >= probe.BUFFER / 1e9
    assert session.ask("inventory", 60, kind="cpu")["items"]["cores"] == sample.cores


def test_what_arrives_after_a_moment_without_data_says_nothing_of_a_link() -> None:
    """Recorded on a link of 50 Mbit/s whose sender waited for a core between its blocks: Mbit/s, below 0 where it was idle."""
    recorded = (0, 55, 49, -817, 48, *[-163] * 10, 49, 48, 48)
    told = [TcpState(0, 0, abs(rate), rate < 0) for rate in recorded]
    assert usual_rate(told) == 48
    assert usual_rate([one for one in told if one.idle] + told[1:4]) == 0  # too few


def test_the_kernel_tells_whether_a_connection_was_idle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    with sender, receiver:
        for _ in range(5):  # each comes back before the next is sent
            sender.sendall(b"x")
            receiver.sendall(receiver.recv(1))
            sender.recv(1)
        assert of_tcp(sender).idle
        sent, got = threading.Thread(target=sender.sendall, args=(bytes(1 << 26),)), 0
        sent.start()
        while got < 1 << 25:
            got += len(receiver.recv(1 << 16))
        state = of_tcp(sender)
        while got < 1 << 26:
            got += len(receiver.recv(1 << 16))
        sent.join()
    assert (state.idle, state.rate > 0, state.sent > 100) == (False, True, True)


def test_storage_is_written_read_and_left_as_it_was(session: ProbeSession, tmp_path: Path) -> None:
    said = session.ask("storage", 60, directory=str(tmp_path), name="x", bytes=8 << 20, least=0, seconds=60)
    assert (said["bytes"], said["wrong"], list(tmp_path.iterdir())) == (8 << 20, False, [])
    assert min(said["write_seconds"], said["read_seconds"]) > 0
    few = session.ask("storage", 60, directory=str(tmp_path), name="x", bytes=1 << 40, least=0, seconds=0)
    assert few["bytes"] == 0
    some = session.ask("storage", 60, directory=str(tmp_path), name="x", bytes=1 << 40, least=1, seconds=0)
    assert some["bytes"] == probe.PIECE


def test_a_disk_that_takes_a_part_of_a_piece_stores_nothing_wrong(tmp_path: Path) -> None:
    """It is full: here by a limit, which has a write take 2 MiB of the second piece."""
    limit = ["prlimit", f"--fsize={6 << 20}"]
    channel = LocalTransport().dial([*limit, sys.executable, "-c", probe_source(), "token"])
    with closing(ProbeSession("h1", channel, "token")) as full, pytest.raises(HostError, match="File too large"):
        full.ask("storage", 60, directory=str(tmp_path), name="x", bytes=8 << 20, least=0, seconds=60)
    assert list(tmp_path.iterdir()) == []


def test_a_sender_tells_what_its_kernel_knows_of_the_link(session: ProbeSession) -> None:
    how = {"word": "token", "streams": 1, "seconds": 0.05, "least": 1 << 20}
    other = ProbeSession("other", LocalTransport().dial([sys.executable, "-c", probe_source(), "token"]), "token")
    port = session.ask("listen", 60, address="127.0.0.1")["port"]
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(session.ask, "receive", 60, **how)
        sent = other.ask("send", 60, to="127.0.0.1", port=port, block=1 << 16, **how)
    other.close()
    got = receiving.result()
    assert got["bytes"] > 0
    assert sent["tells"]
    assert sent["rate"] == 0 or sent["rate"] > 1e6  # bytes a second, on this machine alone; 0 if it waited too often
    assert sent["sent"] > sent["again"] >= 0


def test_a_transfer_takes_longer_until_enough_has_come_but_not_for_ever(session: ProbeSession) -> None:
    """Who sends now and then sends little: what a lossy link loses of it says nothing."""
    port = session.ask("listen", 60, address="127.0.0.1")["port"]
    with ThreadPoolExecutor(1) as pool, closing(socket.create_connection(("127.0.0.1", port))) as link:
        receiving = pool.submit(session.ask, "receive", 60, word="token", streams=1, seconds=0.1, least=1 << 20)
        link.sendall(b"token")
        while not receiving.done():
            with suppress(ConnectionError):
                link.sendall(b"x")
            time.sleep(0.01)
    assert receiving.result()["seconds"] >= 0.4


def test_what_cannot_be_measured_is_told_and_does_not_end_the_probe(session: ProbeSession) -> None:
    with pytest.raises(HostError, match="cannot measure `storage`: FileNotFoundError"):
        session.ask("storage", 60, directory="/proc", name="x", bytes=1, least=0, seconds=1)
    assert not session.broken
    assert "items" in session.ask("inventory", 60)


def test_a_probe_that_ends_says_why() -> None:
    session = ProbeSession("a", LocalTransport().dial(["sh", "-c", "echo no python; exit 1"]), "token")
    with pytest.raises(HostError, match="cannot measure `compute`: no python"):
        session.ask("compute", 60)
    assert session.broken


def test_a_device_by_pytorch(session: ProbeSession) -> None:
    """The processor takes the place of a device; what is different on others is their names, and pinned memory."""
    program = text_of(Programs().devices)
    for _ in range(2):  # the second time it is there already
        said = session.ask("devices", 600, program=program, kind="cpu", size=64, seconds=0.01)
    assert said["missing"] is None, said
    (one,) = said["devices"]
    assert (one["device"], one["right"], one["gemm"] > 0, one["memory"] > 0) == ("cpu", True, True, True)


def test_a_task_may_take_longer_than_the_probe_waits_for_the_next() -> None:
    """A framework may take ten minutes to add up or to compile; without a task, the probe ends after five."""
    source = probe_source().replace("SILENCE = 300 ", "SILENCE = 1 ")
    assert source != probe_source()
    session = ProbeSession("a", LocalTransport().dial([sys.executable, "-c", source, "token"]), "token")
    program = "import time\ndef measure(task):\n    time.sleep(1.5)\n    return {'slept': True}\n"
    assert session.ask("devices", 60, program=program)["slept"] is True
    with pytest.raises(HostError, match=r"no answer within 0\.2 s"):
        session.ask("devices", 0.2, program=program.replace("1.5", "600"))
    session.channel.settimeout(60)
    assert session.channel.recv(1) == b""  # it has ended, since nobody waits for it any more
    session.close()


def test_copies_are_measured_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor takes the place of a device by another of its names; nothing can pin memory for it."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch_devices, "BUFFER", 1 << 12)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    found = torch_devices.device_speeds(torch, "cpu:0", 64, 0.01)
    assert {key: found[key] > 0 for key in ("copy", "back")} == {"copy": True, "back": True}
    values = device_values({"devices": [{"device": "cuda:0", "copy": 55.0, "back": 52.0}]})
    assert values == {"copies to the device": {"cuda:0": 55.0}, "copies from the device": {"cuda:0": 52.0}}


def test_an_image_without_pytorch_says_so() -> None:
    argv = [sys.executable, "-S", "-I", "-c", probe_source(), "token"]  # no site-packages
    task = json.dumps({"do": "devices", "program": text_of(Programs().devices)})
    done = subprocess.run(argv, input=f"{task}\n", capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert (said["missing"], said["devices"]) == ("that takes PyTorch: No module named 'torch'", [])


# A whole check, of hosts that are all this machine, with its Python.

SHORT: dict[str, Any] = {"compute": 0.01, "memory": 0.01, "bytes": 1 << 20, "link": 0.02, "rounds": 1, "again": 0}


class Tampered(LocalTransport):
    """A host whose Python computes wrong hashes."""

    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name)
        (directory / "sitecustomize.py").write_text("import hashlib\nhashlib.pbkdf2_hmac = lambda *_: b'wrong'\n")
        self.path = f"PYTHONPATH={directory}"

    def dial(self, argv: Sequence[str]) -> Any:
        return super().dial(["env", self.path, *argv])


class AddsWrongly(LocalTransport):
    """A host whose additions are wrong by one."""

    wrong = "return (one + other + 1) & MODULO"

    def dial(self, argv: Sequence[str]) -> Any:
        right = "return (one + other) & MODULO"
        assert sum(right in word for word in argv) == 1
        return super().dial([word.replace(right, self.wrong) for word in argv])


class EndsAdding(AddsWrongly):
    """A host whose probe ends as it adds: it has no memory left, say."""

    wrong = "os._exit(1)"


class LosesConnections(AddsWrongly):
    """A host whose connections break as it adds."""

    wrong = "raise ConnectionError"


def seat(name: str, directory: Path, transport: LocalTransport) -> CheckedHost:
    address = f"127.0.0.{2 + 'abc'.index(name)}"
    (host,) = parse_hosts(f"localhost dir={directory / name} addr={address}\n", "hosts.txt").hosts
    made = CheckedHost(HostJob(replace(host, name=name), transport, "job", "ssh"), ())
    made.facts = facts.ask(made.host_job, "token", [], [])
    return made


def test_a_host_that_computes_wrongly_is_named(tmp_path: Path) -> None:
    seats = [seat(name, tmp_path, LocalTransport(name)) for name in "ab"]
    seats.append(seat("c", tmp_path, Tampered("c", tmp_path)))
    check = FitnessCheck(None, seats, "quick", tmp_path / "state")
    check.effort = replace(check.effort, **SHORT)
    found = {(one.host, one.check): one for one in check.run()}
    assert check.machines == [["a", "b", "c"]]  # which take turns
    assert {one.code for one in found.values() if one.host != "c" and one.check == "compute"} <= {None, "slow-host"}
    checks = {"inventory", "compute", "memory", "storage", "link", "collective"}
    assert {check for host, check in found if host == "a"} == checks
    assert (found["c", "compute"].verdict, found["c", "compute"].code) == ("error", "wrong-result")
    assert found["a", "compute"].unit == "Mround/s"
    assert (found["a", "compute"].value or 0) > 0
    assert list(tmp_path.rglob(".jobctl-fitness-*")) == []
    assert (tmp_path / "state/fitness/a.json").exists()


def test_a_host_without_a_node_of_the_job_is_told_and_not_measured(tmp_path: Path) -> None:
    survey = Survey(TWO, [seat(name, tmp_path, LocalTransport(name)) for name in "ab"])
    text = "no node of the job is there: not measured"
    left_out = [Finding(name, "compute", "skipped", text) for name in "ab"]
    assert measured(survey, [], "quick", tmp_path / "state") == left_out


def test_storage_is_measured_of_a_host_that_has_had_no_job_yet(tmp_path: Path) -> None:
    fresh = seat("a", tmp_path, LocalTransport("a"))
    facts.forget(fresh.host_job, "token")  # the preflight leaves nothing
    assert not (tmp_path / "a").exists()
    check = FitnessCheck(None, [fresh], "quick", tmp_path / "state")
    check.effort = replace(check.effort, **SHORT)
    assert [(one.verdict, one.unit) for one in check.run() if one.check == "storage"] == [("ok", "MB/s")]
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_host_without_python_hides_no_other(tmp_path: Path) -> None:
    class Bare(LocalTransport):
        def dial(self, argv: Sequence[str]) -> Any:
            return super().dial(["env", "PATH=/nowhere", *argv])

    seats = [seat("a", tmp_path, LocalTransport("a")), seat("b", tmp_path, Bare("b"))]
    check = FitnessCheck(None, seats, "quick", tmp_path / "state")
    check.effort = replace(check.effort, **SHORT)
    found = [(one.host, one.check, one.verdict) for one in check.run()]
    assert [one for one in found if one[0] == "b"] == [("b", "inventory", "error")]
    assert ("a", "compute", "ok") in found


def test_a_host_that_adds_wrongly_is_named(tmp_path: Path) -> None:
    kinds = {"a": LocalTransport, "b": AddsWrongly, "c": LocalTransport}
    check = FitnessCheck(None, [seat(name, tmp_path, kind(name)) for name, kind in kinds.items()], "quick", tmp_path)
    check.effort = replace(check.effort, **SHORT)
    found = {one.host: one for one in check.run() if one.check == "collective"}
    assert {host: (one.verdict, one.code) for host, one in found.items()} == {
        "a": ("ok", None),
        "b": ("error", "wrong-result"),
        "c": ("ok", None),
    }
    assert found["b"].message == "added its numbers to those of other hosts, and the sum is wrong"
    assert (found["a"].message, found["a"].unit) == ("its part of a sum over 3 hosts is right", "s")


@pytest.mark.parametrize(
    ("kind", "verdicts", "hosts"), [(EndsAdding, {"error"}, {"c"}), (LosesConnections, {"skipped"}, {"a", "b", "c"})]
)
def test_of_a_sum_that_comes_to_nothing_no_host_is_accused_but_one_whose_probe_ends(
    kind: type[LocalTransport], verdicts: set[str], hosts: set[str], tmp_path: Path
) -> None:
    """Each waits for the next, so all of them fail."""
    kinds = {"a": LocalTransport, "b": LocalTransport, "c": kind}
    check = FitnessCheck(None, [seat(name, tmp_path, kind(name)) for name, kind in kinds.items()], "quick", tmp_path)
    check.effort = replace(check.effort, **SHORT)
    found = [one for one in check.run() if one.check == "collective"]
    assert (len(found), {one.verdict for one in found}, {one.host for one in found} <= hosts) == (1, verdicts, True)


def test_a_host_that_cannot_listen_at_its_address_is_left_out(tmp_path: Path) -> None:
    seats = [seat(name, tmp_path, LocalTransport(name)) for name in "abc"]
    host = replace(seats[2].host_job.host, addr="192.0.2.1")  # of nobody
    seats[2].host_job.host = host
    check = FitnessCheck(None, seats, "quick", tmp_path)
    check.effort = replace(check.effort, **SHORT)
    found = {(one.host, one.check): one.verdict for one in check.run() if one.check in ("link", "collective")}
    assert set(found) == {("a", "link"), ("b", "link"), ("c", "link"), ("a", "collective"), ("b", "collective")}
    assert (found["c", "link"], found["a", "collective"], found["b", "collective"]) == ("skipped", "ok", "ok")
