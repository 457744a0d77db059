"""What hosts and their devices are, and where one differs from the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobctl.jobspec.deploy.check.fitness import probe
from jobctl.jobspec.deploy.check.fitness.inventory import compare

SMI = {
    "index": "0",
    "name": "NVIDIA H100 80GB HBM3",
    "driver_version": "550.54.15",
    "vbios_version": "96.00.89.00.01",
    "memory.total": "81559",
    "power.limit": "700.00",
    "clocks.max.sm": "1980",
    "pcie.link.width.current": "16",
    "ecc.errors.uncorrected.volatile.total": "0",
    "retired_pages.pending": "No",
}


def inventory(*changes: dict[str, object], **items: object) -> dict[str, object]:
    """What a probe says of a host: its devices, each with changes, and other items."""
    usual = {"cores": 96.0, "memory in GiB": 1007.5, "kernel": "6.1.0", "python": "3.11.2"}
    lines = [", ".join(map(str, {**SMI, **change}.values())) for change in changes]
    return {"items": {**usual, **items}, "driver": {"tool": "nvidia-smi", "text": "\n".join(lines)}}


def test_hosts_that_are_alike() -> None:
    same = {host: inventory({}, {}) for host in "abc"}
    same["b"] = inventory({}, {}, **{"memory in GiB": 1007.1})
    assert [(one.verdict, one.message) for one in compare(same)] == [("ok", "like the others")] * 3
    assert [one.message for one in compare({"a": inventory()})] == ["nothing to compare with"]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (inventory({}, {"power.limit": "500.00"}), "device 1: power limit in W: 500, and 700 elsewhere"),
        (inventory({}, {"pcie.link.width.current": "8"}), "device 1: PCIe lanes: 8, and 16 elsewhere"),
        (inventory({}, {}, kernel="5.10.0"), "kernel: 5.10.0, and 6.1.0 elsewhere"),
        (inventory({}, {}, cores=48.0), "cores: 48, and 96 elsewhere"),
        (inventory({"driver_version": "[N/A]"}, {}), ""),
    ],
)
def test_a_host_that_differs(odd: dict[str, object], said: str) -> None:
    every = {**{host: inventory({}, {}) for host in "abc"}, "d": odd}
    *others, found = compare(every)
    assert {one.verdict for one in others} == {"ok"}
    assert (found.verdict, found.code, found.message if said else "") == (
        ("warning", "differs", said) if said else ("ok", None, "")
    )


def test_numbers_that_differ_have_their_median() -> None:
    *_, found = compare({**{host: inventory() for host in "ab"}, "c": inventory(cores=48.0)})
    assert (found.value, found.median, found.unit) == (48.0, 96.0, "cores")


def test_of_two_hosts_the_lesser_one_is_told_what_the_other_has() -> None:
    """Their mean is what none of them has."""
    found = [(one.verdict, one.message) for one in compare({"a": inventory(cores=48.0), "b": inventory()})]
    assert found == [("warning", "cores: 48, and 96 elsewhere"), ("ok", "like the others")]


def test_a_device_that_no_job_should_use() -> None:
    ecc, retires = {"ecc.errors.uncorrected.volatile.total": "3"}, {"retired_pages.pending": "Yes"}
    found = [(one.verdict, one.message) for one in compare({"a": inventory({}, ecc), "b": inventory(retires)})]
    assert found == [
        ("error", "device 1 has had 3 memory errors that ECC could not correct"),
        ("error", "device 0 waits for a reset, to retire pages of its memory"),
    ]


def test_a_port_for_rdma_that_has_half_of_its_lanes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel has it: a cable or a transceiver that is half dead leaves a port two of its four lanes."""
    said = {}
    for host, rate in {"a": "200 Gb/sec (4X HDR)", "b": "200 Gb/sec (4X HDR)", "c": "100 Gb/sec (2X HDR)"}.items():
        port = tmp_path / host / "mlx5_0/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port / "rate").write_text(f"{rate}\n")
        (tmp_path / host / "mlx5_1/ports/1").mkdir(parents=True)  # which tells nothing
        monkeypatch.setattr(probe, "INFINIBAND", str(tmp_path / host))
        said[host] = probe.inventory({"kind": "cpu"})
    *others, found = compare(said)
    assert {one.verdict for one in others} == {"ok"}
    text = "RDMA port 1 of mlx5_0: 4: ACTIVE, 100 Gb/sec (2X HDR), and 4: ACTIVE, 200 Gb/sec (4X HDR) elsewhere"
    assert (found.verdict, found.code, found.message) == ("warning", "differs", text)
