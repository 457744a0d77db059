"""Which hosts a fitness check names, by recorded and by simulated measurements."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from jobctl.jobspec.deploy.check.fitness.effort import EFFORTS
from jobctl.jobspec.deploy.check.fitness.findings import findings_of
from jobctl.jobspec.deploy.check.fitness.rounds import FAR, Doubts, measure_in_rounds
from jobctl.jobspec.deploy.check.fitness.samples import (
    NOISE,
    Sample,
    SharedCores,
    device_values,
    sample_of,
    storage_speed,
    transfer_seconds,
    transfer_speed,
)
from jobctl.jobspec.deploy.check.fitness.verdicts import (
    METRIC,
    Place,
    Values,
    judge,
    judge_all,
)
from jobctl.jobspec.deploy.store.speeds import Speed, Speeds

COMPUTE = METRIC["all cores"]


def judged(values: Sequence[float], past: Mapping[int, Sequence[float]] | None = None) -> list[tuple[str, str]]:
    """Return verdict and reference for the speeds of some hosts."""
    places: list[Place] = [(f"h{number}", "") for number in range(len(values))]
    earlier = {places[number]: before for number, before in (past or {}).items()}
    return [(one.verdict, one.against) for one in judge(COMPUTE, dict(zip(places, values, strict=True)), earlier)]


# Simulated fleets.


def fleet(seed: int, size: int, bad: float | None = None, noise: float = 0.02) -> tuple[list[str], dict[str, float]]:
    """Return hosts and what each of them can do: one is `bad` times as fast as the others, if that is given."""
    dice = random.Random(seed)
    speeds = {f"h{number}": 6 * dice.gauss(1, noise / 2) for number in range(size)}
    if bad is not None:
        speeds[f"h{seed % size}"] = 6 * bad
    return list(speeds), speeds


def accused(seed: int, size: int, bad: float | None = None, shared: bool = True) -> dict[str, str]:
    """Return the hosts that are not `ok` after a whole check, by what happens to windows on busy machines.

    `shared`: all hosts are one machine, and a bad one has a quota. Otherwise other work takes up to half of every seventh
    window.
    """
    hosts, speeds = fleet(seed, size, bad)
    dice = random.Random(seed + 1000)
    cores = SharedCores()

    def measure(groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        drift = dice.uniform(0.5, 1.0)  # of all cores, in this round

        def sample(host: str) -> Sample:
            used = 2.0 * (bad or 1.0) if host == f"h{seed % size}" else 2.0
            core = 3 * drift * (1 + dice.uniform(0, 0.12) * (dice.random() < 0.3)) * dice.gauss(1, 0.03)
            busy = used * dice.uniform(0.1, 1.0)  # others have the rest
            return Sample(core * busy, 1.0, busy, 0.0, 2, used)

        def window(host: str) -> float:
            disturbed = dice.uniform(0.5, 0.9) if dice.random() < 0.15 else 1.0
            return speeds[host] * disturbed * (1 - abs(dice.gauss(0, 0.02)))

        if shared:
            weighed = cores.speeds({host: sample(host) for group in groups for host in group})
            return {"all cores": {(host, ""): speed for host, speed in weighed.items()}}
        return {"all cores": {(host, ""): window(host) for group in groups for host in group}}

    machines = [hosts] if shared else [[host] for host in hosts]
    effort = EFFORTS["quick"]

    def steady(metric: str, host: str) -> bool:
        return cores.steady(host)

    values = measure_in_rounds(machines, measure, {}, effort.rounds, effort.again, steady)
    return {one.place[0]: one.verdict for one in judge_all(values, {}) if one.verdict != "ok"}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [4, 8, 64])
def test_of_many_hosts_the_slow_one_is_named_and_no_other(size: int, shared: bool) -> None:
    found = [accused(seed, size, bad=0.8, shared=shared) for seed in range(20)]
    assert found == [{f"h{seed % size}": "error"} for seed in range(20)]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 64])
def test_no_healthy_host_is_accused(size: int, shared: bool) -> None:
    assert [found for seed in range(50) if (found := accused(seed, size, shared=shared))] == []


def test_with_three_hosts_a_fifth_may_be_too_little_to_be_sure() -> None:
    """With three, one healthy host that differs a little makes the usual deviation large; a third slower is sure."""
    assert [accused(seed, 3, bad=0.67, shared=False) for seed in range(20)] == [
        {f"h{seed % 3}": "error"} for seed in range(20)
    ]
    found = [accused(seed, 3, bad=0.8, shared=False) for seed in range(20)]
    assert all(one in ({}, {f"h{seed % 3}": "error"}) for seed, one in enumerate(found))
    assert sum(map(bool, found)) >= 15


def test_with_two_hosts_a_small_difference_warns_and_a_large_one_is_an_error() -> None:
    assert judged([6.0, 5.5]) == [("ok", "other"), ("ok", "other")]
    assert judged([6.0, 4.9]) == [("ok", "other"), ("warning", "other")]
    assert judged([4.0, 6.0]) == [("error", "other"), ("ok", "other")]


def test_one_host_is_compared_with_its_past_only() -> None:
    assert judged([3.0]) == [("ok", "nothing")]
    assert judged([3.0], {0: [6.0, 6.1]}) == [("ok", "nothing")]  # too little to know
    assert judged([3.0], {0: [6.0, 6.1, 5.9]}) == [("warning", "past")]  # it may be the image's
    assert judged([5.8], {0: [6.0, 6.1, 5.9]}) == [("ok", "nothing")]


def test_a_hosts_own_past_decides_where_the_median_does_not() -> None:
    same = {number: [6.0, 6.0, 6.0] for number in range(2)}
    assert judged([6.0, 4.9], same)[1] == ("error", "past")
    faster = {0: [6.0] * 3, 1: [6.0] * 3, 2: [7.0] * 3}  # this host was the fastest; it has lost a fifth
    assert judged([6.0, 6.0, 5.6], faster)[2] == ("error", "past")


def test_what_all_hosts_have_lost_is_no_hosts_fault() -> None:
    assert judged([4.0, 4.1, 4.0], {number: [6.0] * 5 for number in range(3)}) == [("ok", "median")] * 3
    # The others have lost a tenth, and the last one a fifth, of which half is not its own.
    assert judged([5.4, 5.4, 5.4, 4.8], {number: [6.0] * 5 for number in range(4)}) == [("ok", "median")] * 4


def test_hosts_are_compared_by_what_a_core_did_in_all_rounds() -> None:
    """Others are measured in two rounds, and a doubtful host in more, when the machine is faster."""
    cores = SharedCores()
    for rate in (1.0, 2.0):
        cores.speeds({host: Sample(rate, 1.0, 1.0, 0.0, 2, 1.6 if host == "d" else 2.0) for host in "abcd"})
    found = cores.speeds({"d": Sample(2.0, 1.0, 1.0, 0.0, 2, 1.6)})
    assert found == {"a": 3.0, "b": 3.0, "c": 3.0, "d": pytest.approx(2.4)}


# Recorded windows: two cores, of which other work had most (load 14). `cores` was added by hand: the probe tells it since.

BUSY = (
    {"work": 0.29, "wall": 0.515, "cpu": 0.098, "idle": 0.0, "workers": 2, "cores": 2.0},
    {"work": 0.385, "wall": 0.512, "cpu": 0.13, "idle": 0.0, "workers": 2, "cores": 2.0},
    {"work": 0.34, "wall": 0.512, "cpu": 0.118, "idle": 0.0, "workers": 2, "cores": 2.0},
    {"work": 0.375, "wall": 0.509, "cpu": 0.124, "idle": 0.0, "workers": 2, "cores": 2.0},
)
QUOTA = (  # 1.6 cores, of the same machine at the same time: it never came to that
    {"work": 0.315, "wall": 0.509, "cpu": 0.101, "idle": 0.0, "workers": 2, "cores": 1.6},
    {"work": 0.325, "wall": 0.52, "cpu": 0.107, "idle": 0.0, "workers": 2, "cores": 1.6},
    {"work": 0.32, "wall": 0.512, "cpu": 0.106, "idle": 0.0, "workers": 2, "cores": 1.6},
)


def shared(**hosts: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return the speeds of hosts that share one machine, in the last of several rounds."""
    cores, found = SharedCores(), dict[str, float]()
    for windows in zip(*hosts.values(), strict=True):
        found = cores.speeds({host: sample_of(one) for host, one in zip(hosts, windows, strict=True)})
    return {host: round(speed, 1) for host, speed in found.items()}


def test_what_others_took_from_a_host_of_a_shared_machine_is_not_its_fault() -> None:
    assert shared(a=BUSY[:2], b=BUSY[2:]) == {"a": 5.9, "b": 5.9}
    assert [round(sample_of(one).speed, 1) for one in BUSY] == [0.6, 0.8, 0.7, 0.7]


def test_a_quota_that_the_control_group_tells_of_counts_on_a_busy_machine_too() -> None:
    speeds = list(shared(a=BUSY[:3], b=BUSY[1:], c=BUSY[:3], d=QUOTA).values())
    assert speeds == [5.9, 5.9, 5.9, 4.7]
    assert [verdict for verdict, _ in judged(speeds)] == ["ok", "ok", "ok", "error"]


def test_a_core_that_is_a_little_slower_is_that_by_its_sibling_and_by_a_lot_by_its_host() -> None:
    little, lot = ({**BUSY[0], "work": 0.29 * share} for share in (0.85, 0.6))
    assert shared(a=BUSY[:1], b=BUSY[:1], c=[little]) == dict.fromkeys("abc", 5.9)
    assert shared(a=BUSY[:1], b=BUSY[:1], c=[lot]) == {"a": 5.9, "b": 5.9, "c": 3.6}


def test_a_host_that_does_not_run_while_cores_are_idle_is_slow_whatever_limits_it() -> None:
    free = Sample(6.0, 1.0, 2.0, 0.0, 2, 2.0)
    throttled = Sample(4.8, 1.0, 1.6, 0.4, 2, 2.0)
    assert SharedCores().speeds({"a": free, "b": throttled}) == {"a": 6.0, "b": pytest.approx(4.8)}


def test_memory_of_one_machine_is_as_fast_for_all_its_hosts() -> None:
    """In a bad moment of it two hosts had half of the others' speed; a quota on cores still shows."""
    cores, samples = SharedCores(NOISE["memory of the host"]), dict[str, Sample]()
    for host, speed in {"a": 15.0, "b": 30.0, "c": 30.0, "d": 30.0}.items():
        share = 1.0 if host == "d" else 2.0
        samples[host] = Sample(work=speed * share, wall=1.0, cpu=share, idle=2.0 - share, workers=2, cores=share)
    assert cores.speeds(samples) == {"a": 60.0, "b": 60.0, "c": 60.0, "d": pytest.approx(30.0)}


@pytest.mark.parametrize("data", [{}, {"work": 1}, {**BUSY[0], "cpu": 0.0}, {**BUSY[0], "workers": None}])
def test_what_is_not_a_sample_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a sample"):
        sample_of(data)


def test_storage_without_the_wait_for_a_core() -> None:
    said = {"bytes": 32 << 20, "write_seconds": 0.3, "write_waited": 0.1}
    assert round(storage_speed(said, "write", shared=False)) == 112
    assert round(storage_speed(said, "write", shared=True)) == 168


def test_a_host_that_did_not_wait_for_a_core_has_no_slow_disk_by_that() -> None:
    """At a load of 16 most hosts waited almost all the time while the disk went on: 5600 MB/s, and 560 for who did not."""
    waited, ran = (
        {
            "bytes": 32 << 20,
            "write_seconds": 0.06,
            "write_waited": seconds,
            "read_seconds": 0.06,
            "read_waited": seconds,
        }
        for seconds in (0.059, 0.0)
    )
    for what, metric in (("write", METRIC["writing"]), ("read", METRIC["reading"])):
        share = storage_speed(ran, what, shared=True) / storage_speed(waited, what, shared=True)
        assert share > (1 - metric.tolerance) / FAR  # so that more comparisons may clear it


def test_a_transfer_without_the_wait_for_a_core() -> None:
    """Of a machine whose load was 14, and of a link that is shaped to 20 Mbit/s; all but `worked`, which is made up, is recorded."""
    got = {"bytes": 433324032, "seconds": 0.25, "waited": 0.117, "worked": 0.13}
    sent = {"waited": 0.121, "worked": 0.10}
    assert transfer_seconds(got, sent, shared=False) == 0.25
    assert transfer_seconds(got, sent, shared=True) == 0.13
    shaped = {"bytes": 597408, "seconds": 0.25, "waited": 0.015, "worked": 0.002}
    assert round(transfer_seconds(shaped, {"waited": 0.001, "worked": 0.001}, shared=True), 3) == 0.234


def test_where_cores_are_shared_the_kernel_knows_how_fast_a_link_is() -> None:
    """Recorded at a load of 20, on a link of 50 Mbit/s: it carried what was in a buffer while a host waited for a core."""
    got = {"bytes": 1060472, "seconds": 0.1769, "waited": 0.0748, "worked": 0.005}
    sent = {"waited": 0.0038, "worked": 0.002, "rate": 5978150, "tells": True}
    assert round(transfer_speed(got, sent, shared=True), 1) == 47.8
    assert round(transfer_speed(got, {**sent, "rate": 0, "tells": False}, shared=True), 1) == 86.3  # an old kernel
    assert round(transfer_speed(got, {**sent, "rate": 0}, shared=True), 1) == 48.0  # it is that fast at least
    assert round(transfer_speed(got, sent, shared=False), 1) == 48.0


def test_hosts_that_take_turns_measure_for_whole_periods_of_a_quota() -> None:
    """A period is 0.1 s. Eight hosts whose turns are as long as those of others would take half a minute."""
    for effort in EFFORTS.values():
        assert round(effort.turn.compute / 0.1, 6) in (2, 5)
        assert (effort.turn.rounds, effort.turn.again) == (effort.rounds, effort.again)
        assert effort.turn.storage * 20 == effort.storage


# What is told.


def test_one_finding_for_each_host_and_check_about_its_worst_value() -> None:
    devices = {(host, f"cuda:{number}"): 430.0 for host in ("a", "b") for number in range(2)}
    values = {
        "all cores": {("a", ""): 90.0, ("b", ""): 91.0},
        "matrix products": {**devices, ("b", "cuda:1"): 312.0},
        "copies to the device": {**dict.fromkeys(devices, 55.0), ("a", "cuda:0"): 26.0},
    }
    found = {(one.host, one.check): one for one in findings_of(judge_all(values, {}))}
    slow, link = found["b", "compute"], found["a", "memory"]
    assert {key: one.verdict for key, one in found.items()} == {
        ("a", "compute"): "ok",
        ("b", "compute"): "error",
        ("a", "memory"): "error",
        ("b", "memory"): "ok",
    }
    assert (slow.code, slow.value, slow.median, slow.unit) == ("slow-device", 312.0, 430.0, "TFLOP/s")
    assert slow.message == "matrix products cuda:1: 312 TFLOP/s, 27 % below the median of 4 (430)"
    assert link.message == "copies to the device cuda:0: 26 GB/s, 53 % below the median of 4 (55)"
    assert "--exclude" in (slow.hint or "") or "devices=" in (slow.hint or "")


def test_with_two_hosts_the_message_says_that_nobody_knows_which_is_usual() -> None:
    (_, found) = findings_of(judge(COMPUTE, {("a", ""): 6.0, ("b", ""): 4.0}, {}))
    text = "all cores: 4 Mround/s, 33 % below the other (6); with two, nobody can say which of them is usual"
    assert (found.host, found.code, found.message) == ("b", "slow-host", text)


# What a probe on a host of two devices would say: written by hand, no such host was there.
SAID = {
    "missing": None,
    "torch": "2.5.1+cu124",
    "devices": [
        {"device": "cuda:0", "right": True, "gemm": 430.1, "memory": 2400.0, "copy": 55.2, "together": 425.0},
        {"device": "cuda:1", "right": True, "gemm": 428.0, "memory": 2390.0, "copy": 55.0, "together": 425.0},
    ],
}


def test_what_a_probe_says_of_devices() -> None:
    assert device_values(SAID) == {
        "matrix products": {"cuda:0": 430.1, "cuda:1": 428.0},
        "memory of the device": {"cuda:0": 2400.0, "cuda:1": 2390.0},
        "copies to the device": {"cuda:0": 55.2, "cuda:1": 55.0},
        "all devices together": {"": 850.0},
    }


# What is kept of a host.


def test_the_past_of_a_host_is_that_under_the_same_conditions(tmp_path: Path) -> None:
    now, other = Speeds(tmp_path, {"a/b": "image 1"}), Speeds(tmp_path, {"a/b": "image 2"})
    for value in range(25):
        now.keep([Speed("a/b", "all cores", "", float(value)), Speed("a/b", "matrix products", "cuda:0", 1.0)])
    assert now.past()["all cores"] == {("a/b", ""): [float(value) for value in range(5, 25)]}
    assert now.past()["matrix products"] == {("a/b", "cuda:0"): [1.0] * 20}
    assert other.past() == {}
    (tmp_path / "a_b.json").write_text('{"image 1": 7}')
    assert now.past() == {}
