"""What the tools of drivers say of devices.

The texts are as these tools print them, as recorded by others, with some values changed. That of `nvidia-smi` is of an
H100 with driver 590 (github.com/utkuozdemir/nvidia_gpu_exporter, internal/captures), that of `rocm-smi --showrasinfo` of an
MI50 (arkprojects.space/wiki/AMD_GFX906). That of `npu-smi info -t ecc` is as the documentation and the source of Ascend's
driver have it. Second devices and errors were added by hand.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.deploy.check.fitness import probe
from jobctl.jobspec.deploy.check.fitness.device_tools import DeviceState, device_states, driver_errors
from jobctl.jobspec.deploy.check.fitness.inventory import compare
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.transport.local import LocalTransport

TEXTS = Path(__file__).parent / "device_tools"


def told(tool: str, old: str = "", new: str = "") -> dict[str, str]:
    return {"tool": tool, "text": (TEXTS / f"{tool}.txt").read_text().replace(old, new)}


def test_nvidia() -> None:
    h100: dict[str, float | str] = {
        "model": "NVIDIA H100 80GB HBM3",
        "driver": "590.48.01",
        "firmware": "96.00.A5.00.01",
        "memory in MiB": 81559.0,
        "power limit in W": 700.0,
        "highest clock in MHz": 1980.0,
        "PCIe lanes": 16.0,
    }
    ecc = ("has had 3 memory errors that ECC could not correct",)
    assert device_states(told("nvidia-smi")) == [DeviceState(h100), DeviceState({**h100, "PCIe lanes": 8.0}, ecc)]


@pytest.mark.parametrize(
    ("state", "broken"),
    [
        ("0, No", ()),  # of a driver that knows no rows
        ("0, Yes", ("waits for a reset, to retire pages of its memory",)),
        ("[N/A], [N/A], No, No", ()),
        ("0, [N/A], Yes, No", ("waits for a reset, to use spare rows of its memory instead of bad ones",)),
        ("0, [N/A], 1, 0", ("waits for a reset, to use spare rows of its memory instead of bad ones",)),
        ("0, [N/A], No, Yes", ("has no spare rows of memory left for a bad one",)),
    ],
)
def test_the_memory_of_an_nvidia_gpu(state: str, broken: tuple[str, ...]) -> None:
    (first, *_) = device_states(told("nvidia-smi", "0, [N/A], No, No", state))
    assert (first.broken, first.items["PCIe lanes"]) == (broken, 16.0)


def test_rocm() -> None:
    mi250: dict[str, float | str] = {
        "model": "AMD INSTINCT MI250 (MCM) OAM AC MBA",
        "driver": "6.2.4",
        "firmware": "113-D65209-073",
        "memory in MiB": 65520.0,
    }
    more: dict[str, float | str] = {"power limit in W": 560.0, "highest clock in MHz": 1700.0}
    assert device_states(told("rocm-smi")) == [DeviceState({**mi250, **more}), DeviceState(mi250)]


def test_npu() -> None:
    found = device_states(told("npu-smi"))
    assert [(one.items["model"], one.items["memory in MiB"]) for one in found] == [
        ("Ascend910", 65536.0),
        ("Ascend910", 65536.0),
        ("910B3", 65536.0),
        ("310P3", 43693.0),
    ]
    assert {one.items["driver"] for one in found} == {"24.1.rc3.7"}
    assert [one.items["health"] for one in found] == ["OK", "Warning", "OK", "OK"]
    assert {one.broken for one in found} == {()}


ERRORS = {"rocm-smi": TEXTS / "rocm-smi-ras.txt", "npu-smi": TEXTS / "npu-smi-ecc.txt"}  # what else they are asked


@pytest.mark.parametrize("tool", ERRORS)
@pytest.mark.parametrize("errors", ["", "x", "NPU ID : 0\nChip ID : x", "GPU[0]: RAS INFO\nUMC ENABLED 1"])
def test_memory_without_errors(tool: str, errors: str) -> None:
    """Corrected errors, errors of a device's whole life, isolated pages, and numbers of blocks that are off are none."""
    assert {one.broken for one in device_states({**told(tool), "errors": ERRORS[tool].read_text()})} == {()}
    assert device_states({**told(tool), "errors": errors}) == device_states(told(tool))


BITS, PAGES = "HBM Double Bit Error Count               : ", "HBM Double Bit Next-Isolated Pages Count : "


@pytest.mark.parametrize(
    ("tool", "old", "new", "device", "said"),
    [
        (
            "rocm-smi",
            "UMC        ENABLED                  0                    0",
            "UMC ENABLED 0 2",
            0,
            "in its block UMC",
        ),
        (
            "rocm-smi",
            "5                    0",
            "5 1",
            1,
            "has had 1 errors that ECC could not correct, in its block GFX",
        ),
        ("npu-smi", f"{BITS}0", f"{BITS}2", 0, "has had 2 memory errors that ECC could not correct"),
        ("npu-smi", f"{PAGES}4294967295", f"{PAGES}1", 1, "waits for a reset, to isolate bad pages of its memory"),
        (
            "npu-smi",
            f"{PAGES}0\n\tNPU",
            f"{PAGES}64\n\tNPU",
            2,
            "waits for a reset, to isolate bad pages of its memory",
        ),
        (
            "npu-smi",
            "Double-bit Error Count                   : 0",
            "Double-bit Error Count : 9",
            3,
            "has had 9 memory",
        ),
    ],
)
def test_memory_with_errors(tool: str, old: str, new: str, device: int, said: str) -> None:
    text = ERRORS[tool].read_text()
    assert old in text
    found = device_states({**told(tool), "errors": text.replace(old, new, 1)})
    assert {number: said in one.broken[0] for number, one in enumerate(found) if one.broken} == {device: True}


@pytest.mark.parametrize("tool", ["nvidia-smi", "rocm-smi", "npu-smi", "xpu-smi"])
@pytest.mark.parametrize("text", ["", "x", "{", "[]", '{"card0": 1, "system": 2}', "| 0 |\n| 1 |", "1, 2, 3"])
def test_other_words_are_no_devices(tool: str, text: str) -> None:
    assert device_states({"tool": tool, "text": text}) == []


@pytest.mark.parametrize("said", [None, [], {}, {"tool": "npu-smi"}, {"tool": 1, "text": 2}])
def test_without_a_tool_there_are_no_devices(said: object) -> None:
    assert device_states(said) == []


@pytest.mark.parametrize(
    ("tool", "old", "new", "verdict", "said"),
    [
        ("rocm-smi", '"560.0"', '"300.0"', "warning", "device 0: power limit in W: 300, and 560 elsewhere"),
        ("rocm-smi", "1700Mhz", "1200Mhz", "warning", "device 0: highest clock in MHz: 1200, and 1700 elsewhere"),
        ("npu-smi", "310P3", "310P1", "warning", "device 3: model: 310P1, and 310P3 elsewhere"),
        ("npu-smi", "43        ", "44        ", "ok", "like the others"),
        ("npu-smi", "Warning", "OK     ", "warning", "device 1: health: OK, and Warning elsewhere"),
        (
            "npu-smi",
            "OK            | 178.8",
            "Alarm         | 178.8",
            "error",
            "device 0 has the health `Alarm`, by `npu-smi`",
        ),
    ],
)
def test_a_host_whose_devices_differ(tool: str, old: str, new: str, verdict: str, said: str) -> None:
    usual: dict[str, Any] = {"items": {}, "driver": told(tool)}
    odd = {"items": {}, "driver": {"tool": tool, "text": usual["driver"]["text"].replace(old, new)}}
    assert odd != usual
    *_, found = compare({"a": usual, "b": usual, "c": odd})
    assert (found.verdict, found.message) == (verdict, said)


def play(tool: str, directory: Path, *, code: int = 0, refuses: str = "no word") -> None:
    """Put a tool there that prints its texts, and keeps its arguments; it fails on those that have a word in them."""
    path = directory / tool
    kept, text = json.dumps(str(directory / f"{tool}.args")), (TEXTS / f"{tool}.txt").read_text()
    errors = ERRORS[tool].read_text() if tool in ERRORS else ""
    asked = "' '.join(sys.argv[1:])"
    printed = f"print({errors!r} if '-t ecc' in {asked} or 'ras' in {asked} else {text!r})"
    lines = (f"#!{sys.executable}", "import sys", f"open({kept}, 'a').write({asked} + '\\n')", printed)
    path.write_text("\n".join((*lines, f"sys.exit(2 if {refuses!r} in {asked} else {code})")) + "\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("kind", "tool"), [("gpu", "nvidia-smi"), ("gpu", "rocm-smi"), ("dcu", "rocm-smi"), ("npu", "npu-smi")]
)
def test_the_probe_asks_the_tool_that_is_there(kind: str, tool: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    play(tool, tmp_path)
    said = probe.inventory({"kind": kind})["driver"]
    assert (said["tool"], len(device_states(said))) == (tool, {"npu-smi": 4}.get(tool, 2))
    asked = (tmp_path / f"{tool}.args").read_text().splitlines()
    wanted = {
        "rocm-smi": "--showmeminfo vram",
        "npu-smi": "info",
        "nvidia-smi": "--query-gpu=index,name,driver_version",
    }
    assert wanted[tool] in asked[0]
    errors = {"rocm-smi": ["--showrasinfo all"], "npu-smi": [f"info -t ecc -i {npu}" for npu in (0, 4, 8)]}
    assert sorted(asked[1:]) == errors.get(tool, [])
    assert ("Double Bit" in said["errors"], "RAS INFO" in said["errors"]) == (tool == "npu-smi", tool == "rocm-smi")


def test_a_driver_that_knows_no_rows_of_memory_is_asked_again_without_them(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    play("nvidia-smi", tmp_path, refuses="remapped_rows.pending")
    found = device_states(probe.driver("gpu"))
    assert len(found) == 2
    asked = (tmp_path / "nvidia-smi.args").read_text().splitlines()
    assert ["remapped" in one for one in asked] == [True, False]


def test_a_tool_that_fails_leaves_it_to_the_next(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nowhere")
    play("nvidia-smi", tmp_path, code=9)
    assert probe.driver("gpu") == {}
    play("rocm-smi", tmp_path)
    assert probe.driver("gpu")["tool"] == "rocm-smi"
    assert probe.driver("cpu") == {}


def test_what_the_driver_wrote_into_the_log_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script on the host reads it by `dmesg`, or as a user who may not, by journalctl. Xid 13 is a bug of a program."""
    line = "[  812.5] NVRM: Xid (PCI:0000:3b:00): {}, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    log = "\n".join(["[    0.0] Linux version 6.1", line.format(79), line.format(13), line.format(79), "Xid (x): 48"])
    program = f"#!/bin/sh\ncat <<'END'\n{log}\nEND\n"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "dmesg").write_text("#!/bin/sh\necho 'Operation not permitted' >&2\nexit 1\n")
    (tmp_path / "journalctl").write_text(program)
    for name in ("dmesg", "journalctl"):
        (tmp_path / name).chmod(0o755)
    words = ["the device at PCI:0000:3b:00 has reported Xid 79 2 times (it has fallen off the bus)"]
    assert driver_errors(LocalTransport("h").run(SCRIPTS.argv("driver_errors")).out.decode()) == words
    (tmp_path / "dmesg").write_text(program)
    (tmp_path / "journalctl").unlink()
    assert driver_errors(LocalTransport("h").run(SCRIPTS.argv("driver_errors")).out.decode()) == words


def test_a_host_whose_log_has_such_an_error_is_warned_of() -> None:
    """Not unfit: a device that was reset since is well, and the log does not tell."""
    log = "NVRM: Xid (PCI:0000:3b:00): 95, pid=7"
    items = {"items": {"cores": 8.0}, "driver": {}}
    bad, good = compare({"a": {**items, "log": log}, "b": {**items, "log": ""}})
    assert (bad.verdict, bad.code, good.verdict) == ("warning", "differs", "ok")
    assert "Xid 95 (an error of its memory that ECC could not contain)" in bad.message
