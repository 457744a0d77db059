"""Much data that hosts hand on to each other: on hosts that this machine plays."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.host import handing_on
from jobctl.jobspec.deploy.host.handing_on import HandingOn
from jobctl.jobspec.deploy.model.errors import HostError
from jobctl.jobspec.deploy.sending.data_folder import DataFolder
from jobctl.jobspec.deploy.sending.data_source import FolderHere, Rest
from jobctl.jobspec.deploy.sending.data_spread import DataSpread
from tests.deploy.sending.sent_data import package, package_from
from tests.deploy.sending.spread_data import HOSTS, Hosts
from tests.tools.waiting import PATIENCE, promptly


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    return Hosts(tmp_path, monkeypatch)


def test_much_data_leaves_this_machine_once(hosts: Hosts) -> None:
    hosts.write(big=5_000_000, **{f"small{number}": 9_000 for number in range(20)})
    os.symlink("big", hosts.data / "link")
    hosts.bring()
    assert (hosts.complete(), hosts.left()) == (list(HOSTS), [])
    assert hosts.sent < 1.02 * 5_180_000
    assert os.readlink(hosts.version("h3") / "link") == "big"
    assert any(text.startswith("h2 gets images-1 from h1: ") and " of 5 MB" in text for text in hosts.told), hosts.told
    before = hosts.sent
    hosts.up()
    assert hosts.sent == before


def test_only_files_that_differ_travel(hosts: Hosts) -> None:
    hosts.write(big=5_000_000, other=2_000_000)
    hosts.up()
    before = hosts.sent
    hosts.write(other=2_000_000)
    hosts.bring()
    assert hosts.complete() == list(HOSTS)
    assert hosts.sent - before < 1.02 * 2_000_000
    assert [(hosts.version(host) / "big").stat().st_nlink for host in HOSTS] == [2] * 3


def test_a_host_that_lacks_more_gets_that_alone(hosts: Hosts) -> None:
    """What all lack comes from host to host; the others get nothing of what one of them lacks beside that."""
    hosts.write(big=5_000_000, other=2_000_000)
    hosts.up(hosts=("h1", "h2"))
    before = hosts.sent
    hosts.write(other=2_000_000)
    hosts.up()
    assert hosts.complete() == list(HOSTS)
    assert hosts.sent - before < 1.02 * 7_000_000
    assert hosts.jobs["h2"].transport.sent < 200_000


def test_little_data_is_sent_to_each_host_by_itself(hosts: Hosts) -> None:
    hosts.write(big=5_000_000)
    hosts.up()
    hosts.told.clear()
    hosts.write(small=100_000)
    spread = hosts.bring()
    assert hosts.complete() == []
    for job in hosts.jobs.values():
        spread.send(job)
    assert hosts.complete() == list(HOSTS)
    assert not any(" from " in text for text in hosts.told)


def test_hosts_that_have_it_hand_it_on(hosts: Hosts) -> None:
    hosts.write(big=5_000_000)
    hosts.up(hosts=("h2",))
    before = hosts.sent
    hosts.bring()
    assert hosts.complete() == list(HOSTS)
    assert hosts.sent - before < 100_000


def test_what_a_host_has_that_somebody_has_changed_is_found_and_comes_from_here(hosts: Hosts) -> None:
    hosts.write(big=5_000_000)
    hosts.up(hosts=("h2",))
    (hosts.version("h2") / "big").write_bytes(os.urandom(5_000_000))
    before = hosts.sent
    hosts.bring(hosts=("h1", "h2", "h3"))
    assert hosts.complete() == ["h1", "h3"]
    assert hosts.sent - before < 1.1 * 5_000_000


def test_a_folder_of_a_host_does_not_come_through_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(tmp_path, monkeypatch, (*HOSTS, "h4"))
    hosts.write(**{"a\nname": 3_000_000, "big": 5_000_000})
    made = package_from(hosts.jobs["h4"].transport, hosts.data)
    spread = hosts.bring(made, (*HOSTS, "h4"))
    assert hosts.complete(made) == list(HOSTS)
    spread.send(hosts.jobs["h4"])  # it copies its own files
    assert hosts.complete(made) == [*HOSTS, "h4"]
    assert hosts.sent < 100_000


def test_a_folder_of_another_machine_comes_here_once(hosts: Hosts) -> None:
    hosts.write(big=5_000_000)
    made = package_from(type(hosts.jobs["h1"].transport)("store"), hosts.data)
    hosts.bring(made)
    assert hosts.complete(made) == list(HOSTS)
    assert hosts.sent < 1.02 * 5_000_000


def test_a_host_without_python_gets_it_alone_and_is_named(hosts: Hosts) -> None:
    hosts.write(big=5_000_000)
    hosts.jobs["h2"].transport.has_python = False
    hosts.up()
    assert (hosts.complete(), hosts.left()) == (list(HOSTS), [])
    assert "h2 cannot take images-1 from other hosts: python3: not found" in hosts.told
    assert hosts.sent < 2.05 * 5_000_000


def test_one_host_takes_it_from_another_one_that_has_it(hosts: Hosts) -> None:
    hosts.write(big=5_000_000)
    hosts.up(hosts=("h1", "h2"))
    hosts.bring()
    assert hosts.complete() == list(HOSTS)
    assert hosts.jobs["h3"].transport.sent < 100_000


def test_a_host_that_needs_none_gives_it_too(hosts: Hosts) -> None:
    """As for `run`, which brings data to one host only."""
    hosts.write(big=5_000_000)
    hosts.up(hosts=("h2",))
    before = hosts.sent
    hosts.bring(hosts=("h3",))
    assert hosts.complete() == ["h2", "h3"]
    assert hosts.sent - before < 100_000


def test_a_source_without_python_is_not_used(hosts: Hosts) -> None:
    hosts.write(big=5_000_000)
    hosts.up(hosts=("h2",))
    hosts.jobs["h2"].transport.has_python = False
    before = hosts.sent
    hosts.bring()
    assert hosts.complete() == list(HOSTS)
    assert hosts.sent - before < 1.05 * 5_000_000


def test_a_host_without_room_gets_nothing(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.write(big=5_000_000)
    look = DataFolder.look

    def full(folder: DataFolder, *how: Any, **more: Any) -> Any:
        seen = look(folder, *how, **more)
        return replace(seen, free=3_000_000) if "/h2/" in folder.top else seen

    monkeypatch.setattr(DataFolder, "look", full)
    spread = hosts.bring()
    assert hosts.complete() == ["h1", "h3"]
    with pytest.raises(HostError, match=r"no room for 5\.0 MB"):
        spread.send(hosts.jobs["h2"])


# Interrupted.


class Gated:
    """A folder of this machine that is read up to a byte, and then no further, until something has happened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int, until: Callable[[], bool]) -> None:
        self.archived: list[int] = []  # bytes of each archive
        archive = FolderHere.archive

        def gated(folder: FolderHere, names: Collection[bytes], rest: Rest | None) -> Iterator[bytes]:
            self.archived.append(0)
            for piece in archive(folder, names, rest):
                if self.archived[-1] >= at:
                    promptly(until)
                self.archived[-1] += len(piece)
                yield piece

        monkeypatch.setattr(FolderHere, "archive", gated)


def test_after_a_kill_of_this_machines_command_all_hosts_go_on_where_they_were(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole file that has arrived, and the beginning of the other one, do not travel again."""
    hosts.write(a=3_000_000, b=30_000_000)
    begun = {host: hosts.version(host).parent / "incomplete" / "b" for host in HOSTS}
    child = os.fork()
    if child == 0:
        try:
            Gated(monkeypatch, 20_000_000, lambda: False)
            hosts.bring()
        finally:
            os._exit(0)
    promptly(lambda: all(path.exists() and path.stat().st_size > 12_000_000 for path in begun.values()))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    promptly(lambda: not [one for one in hosts.left() if one.isdigit()])
    kept = {host: (path.stat().st_ino, path.stat().st_size) for host, path in begun.items()}
    before = hosts.sent
    hosts.bring()
    assert (hosts.complete(), hosts.left()) == (list(HOSTS), [])
    assert [(hosts.version(host) / "b").stat().st_ino for host in HOSTS] == [kept[host][0] for host in HOSTS]
    assert hosts.sent - before < 1.01 * (30_000_000 - min(size for _, size in kept.values())) + 100_000


def test_a_host_that_dies_in_the_middle_is_left_out_and_gets_the_rest_later(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.write(a=3_000_000, b=30_000_000)
    killed: list[int] = []

    def kill() -> bool:
        if not killed:
            begun = hosts.version("h2").parent / "incomplete" / "b"
            promptly(lambda: begun.exists() and begun.stat().st_size > 5_000_000)
            os.killpg(hosts.jobs["h2"].transport.programs[0]._process.pid, signal.SIGKILL)
            killed.append(1)
        return True

    gated = Gated(monkeypatch, 12_000_000, kill)
    hosts.up()
    assert (hosts.complete(), hosts.left()) == (list(HOSTS), [])
    assert gated.archived[0] > 33_000_000
    assert hosts.jobs["h3"].transport.sent < 100_000
    assert hosts.sent < 1.02 * 33_000_000


def test_a_host_that_hangs_is_an_error_of_that_host(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.write(a=3_000_000, b=30_000_000)
    monkeypatch.setattr(handing_on, "SILENCE_TIMEOUT", PATIENCE)
    stopped: list[Any] = []
    step = HandingOn._step

    def later(transfer: HandingOn) -> None:
        """Play that it has said nothing for so long: the others may be slow, too."""
        if stopped:
            transfer._hosts["h2"].heard -= 2 * PATIENCE
        step(transfer)

    monkeypatch.setattr(HandingOn, "_step", later)

    def stop() -> bool:
        begun = hosts.version("h2").parent / "incomplete" / "b"
        promptly(begun.exists)
        if not stopped:
            process = hosts.jobs["h2"].transport.programs[0]._process
            os.killpg(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            stopped.append(process)  # only now, as the other thread gives the host up then, and hangs up
        return True

    Gated(monkeypatch, 12_000_000, stop)
    spread = hosts.bring()
    os.killpg(stopped[0].pid, signal.SIGKILL)
    assert hosts.complete() == ["h1", "h3"]
    assert {host: error.code for host, error in spread.gone.items()} == {"h2": "silent"}


def test_a_file_that_begins_otherwise_somewhere_is_sent_whole(hosts: Hosts) -> None:
    hosts.write(a=3_000_000)
    whole = (hosts.data / "a").read_bytes()
    for host, begin in {"h1": whole[:900_000], "h2": whole[:700_000], "h3": b"x" * 800_000}.items():
        incomplete = hosts.version(host).parent / "incomplete"
        incomplete.mkdir(parents=True)
        (incomplete / "a").write_bytes(begin)
    hosts.bring()
    assert (hosts.complete(), hosts.left()) == (list(HOSTS), [])
    assert [len(job.transport.programs) for job in hosts.jobs.values()] == [1] * 3


def test_a_file_that_has_begun_everywhere_goes_on_at_the_place_of_the_last_host(hosts: Hosts) -> None:
    hosts.write(a=3_000_000, b=10)
    whole = (hosts.data / "a").read_bytes()
    for host, size in {"h1": 900_000, "h2": 700_000, "h3": 800_000}.items():
        incomplete = hosts.version(host).parent / "incomplete"
        incomplete.mkdir(parents=True)
        (incomplete / "a").write_bytes(whole[:size])
        (incomplete / "gone").write_bytes(b"of no use")
    hosts.bring()
    assert (hosts.complete(), hosts.left()) == (list(HOSTS), [])
    assert hosts.sent < 2_300_000 + 60_000
    assert [len(job.transport.programs) for job in hosts.jobs.values()] == [1] * 3


def test_a_host_where_another_command_is_quicker_is_looked_at_again(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.write(a=3_000_000)
    made, begin = package(hosts.data), DataSpread._begin

    def quicker(spread: DataSpread, one: Any, rest: Any) -> Any:
        if one.job.host.name == "h2":
            made.send(one.job)
            return None
        return begin(spread, one, rest)

    monkeypatch.setattr(DataSpread, "_begin", quicker)
    hosts.bring(made)
    assert hosts.complete() == list(HOSTS)
    assert hosts.sent < 2.05 * 3_000_000


def test_an_error_of_the_folder_shows_where_each_host_gets_it(hosts: Hosts) -> None:
    hosts.write(a=3_000_000)
    made = package_from(hosts.jobs["h1"].transport, hosts.data)
    shutil.rmtree(hosts.data)
    hosts.data.mkdir()
    spread = hosts.bring(made)
    with pytest.raises(HostError, match="a was changed before all of it was sent"):
        spread.send(hosts.jobs["h2"])
