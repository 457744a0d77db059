"""What a plan gives its containers: memory, limits, mounts and data."""

from __future__ import annotations

import pytest

from jobctl.jobspec.planner.memory import SHM_SIZE
from jobctl.jobspec.render.container import host_mounts, job_mounts

from .made import make


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", []),
        ("devices: gpu:1\n", [("memlock", -1, True)]),
        ("container: {devices: [/dev/infiniband/uverbs0]}\n", [("memlock", -1, True)]),
        ("container: {devices: [/dev/fuse]}\n", []),
        ("devices: gpu:1\nresources: {ulimits: {memlock: 4096}}\n", [("memlock", 4096, False)]),
    ],
)
def test_memory_may_be_locked_where_devices_need_it(text: str, limits: list[tuple[str, int, bool]]) -> None:
    (node,) = make(text, "a slots=1\n").nodes
    assert [(u.name, u.soft, u.optional) for u in node.container.ulimits if u.name != "nice"] == limits


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", [(0, True)]),
        ("resources: {ulimits: {nice: 30}}\n", [(30, False)]),
        ("recovery: {standby: 'off'}\n", []),
    ],
)
def test_hosts_may_raise_how_far_a_standby_goes_back(text: str, limits: list[tuple[int, bool]]) -> None:
    """It leaves SCHED_IDLE when it is wanted, which takes that limit, or a privilege."""
    (node,) = make(text, "a slots=1\n").nodes
    assert [(u.soft, u.optional) for u in node.container.ulimits if u.name == "nice"] == limits


def test_limits_mounts_and_labels() -> None:
    text = (
        "volumes: ['/data:/data:ro', 'cache:/cache']\ncheckpoint: /ckpt\nenv: {B: 2, A: 0755}\n"
        "resources: {shm_size: 16g, memory: 8g, cpus: 4, ulimits: {nofile: 65536}}\ncode: src\nrecovery: {standby: 'off'}\n"
    )
    (node,) = make(text, "a\n").nodes
    box = node.container
    assert [(m.kind, m.source, m.target, m.read_only) for m in box.mounts] == [
        ("bind", "/data", "/data", True),
        ("volume", "cache", "/cache", False),
        ("bind", "/ckpt", "/ckpt", False),
    ]
    assert box.env == (("A", "0755"), ("B", "2"))
    assert (box.shm_size, box.memory, box.cpus) == (16 << 30, 8 << 30, 4.0)
    assert [(u.name, u.soft, u.hard) for u in box.ulimits] == [("nofile", 65536, 65536)]
    assert {name: value for name, value in box.labels if name != "jobctl.inputs"} == {
        "jobctl.job": "job",
        "jobctl.node": "0",
        "jobctl.role": "trainer",
        "jobctl.owner": "me@here",
        "jobctl.version": "1.0",
    }
    assert node.launch.workdir == "/workspace"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", SHM_SIZE),
        ("mode: ps\nps: {servers: 1, trainers: 1}", SHM_SIZE),
        ("resources: {shm_size: 1m}", 1 << 20),
        ("container: {options: [--ipc=private]}", SHM_SIZE),
        ("container: {options: [--init, --ipc, host]}", None),
        ("container: {options: ['--ipc=container:other']}", None),
        ("container: {options: [--shm-size=1g]}", None),
        ("container: {options: [--tmpfs, '/dev/shm:size=1g']}", None),
        ("volumes: ['/dev/shm:/dev/shm']", None),
        ("volumes: ['/fast:/dev/shm/']", None),
        ("resources: {shm_size: 1m}\nvolumes: ['/dev/shm:/dev/shm']", 1 << 20),
    ],
)
def test_shared_memory_of_a_container_is_as_large_as_it_takes(text: str, size: int | None) -> None:
    """The 64 MiB that an engine gives are too little for collectives and data loaders; what a user says holds."""
    assert {node.container.shm_size for node in make(text, "a\n").nodes} == {size}


def test_shared_memory_where_no_engine_gives_too_little() -> None:
    assert {node.container.shm_size for node in make().nodes} == {None}
    etcd = make("etcd: {managed: {}}", "a\n")
    assert [service.container.shm_size for service in etcd.services] == [None]


def test_data_is_named_by_its_folder_and_mounted_beside_the_work_directory() -> None:
    plan = make("data: [sub/images:/data, /other/images:/more]\n", "gpu01\ngpu02\n")
    first, second = plan.data
    assert (first.source, first.target, second.target) == ("/specs/sub/images", "/data", "/more")
    assert {one.name.partition("-")[0] for one in plan.data} == {"images"}
    assert first.name != second.name
    (mount,) = (mount for mount in job_mounts(plan.sent, secrets=False) if mount.target == "/data")
    assert (mount.source, mount.read_only) == (f"../.data/{first.name}/data", True)


def test_data_of_a_host_is_named_by_host_and_folder() -> None:
    plan = make("data: ['ml@gpu09:/d/images:/data', '[::1]:/d/images:/more', ./a:b:/here]\n", "gpu01\ngpu02\n")
    assert [(one.host, one.source) for one in plan.data] == [
        ("ml@gpu09", "/d/images"),
        ("[::1]", "/d/images"),
        (None, "/specs/a:b"),
    ]
    assert plan.data[0].place == "ml@gpu09:/d/images"
    assert len({one.name for one in plan.data}) == 3


def test_a_capability_is_added_once() -> None:
    """A compose file must not name it twice."""
    (node,) = make("container: {cap_add: [SYS_PTRACE, IPC_LOCK, SYS_PTRACE]}\n", "a slots=1\n").nodes
    assert node.container.cap_add == ("SYS_PTRACE", "IPC_LOCK")


ASCEND = "/usr/local/Ascend/driver"


@pytest.mark.parametrize(
    ("text", "place", "mounts"),
    [
        ("volumes: ['/ck:/ck']\ncheckpoint: /ck\n", "/ck", [("/ck", "/ck", False)]),
        ("volumes: ['/ck:/ck']\ncheckpoint: /ck/\n", "/ck", [("/ck", "/ck", False)]),
        (f"devices: npu:1\nvolumes: ['{ASCEND}/:{ASCEND}/']\n", ASCEND, [(f"{ASCEND}/", f"{ASCEND}/", False)]),
    ],
)
def test_what_jobctl_mounts_too_comes_once_as_the_user_says(
    text: str, place: str, mounts: list[tuple[str, str, bool]]
) -> None:
    """Engines refuse a container with two mounts at one place."""
    (node,) = make(text, "a slots=1\n").nodes
    found = [one for one in host_mounts(node.container) if one.target.startswith(place)]
    assert [(one.source, one.target, one.read_only) for one in found] == mounts
