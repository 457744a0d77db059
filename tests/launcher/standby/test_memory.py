"""How much memory a node's standby may take: what its group, or one above it, leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobctl.jobspec.launcher.standby import standby as module

NEW, OLD = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")


@pytest.mark.parametrize(
    ("own", "there", "names"),
    [
        pytest.param("0::/", "", NEW, id="container"),
        pytest.param("0::/as/the/machine/has/it", "", NEW, id="container that shares the namespace"),
        pytest.param("0::/slurm/job_7/step_0/task_0", "slurm/job_7", NEW, id="job of Slurm"),
        pytest.param(
            "9:name=systemd:/\n4:cpu,memory:/slurm/job_7/step_0\n0::/", "memory/slurm/job_7", OLD, id="cgroups 1"
        ),
    ],
)
def test_a_limit_of_its_group_is_what_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, there: str, names: tuple[str, str]
) -> None:
    """What files fill of it is free, whether they are read once or in each epoch."""
    (tmp_path / "own").write_text(own + "\n")
    limit, used = (tmp_path / there / name for name in names)
    limit.parent.mkdir(parents=True, exist_ok=True)
    limit.write_text("1000")
    used.write_text("700")
    limit.with_name("memory.stat").write_text("anon 500\ninactive_file 100\nactive_file 50\n")
    groups = list(module.memory_groups(str(tmp_path / "own"), str(tmp_path)))
    monkeypatch.setattr(module, "memory_groups", lambda: groups)
    assert module.free_memory() == (450, 1000)
    limit.write_text("max")
    assert module.free_memory()[1] > 1 << 20
