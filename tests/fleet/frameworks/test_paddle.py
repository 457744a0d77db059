"""Jobs of the real PaddlePaddle in containers of real hosts, one of whose addresses begins another's."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.plan.generation import port_of
from tests.fleet.fleet import Fleet, fleet
from tests.fleet.host import Host
from tests.fleet.jobs import Jobs
from tests.fleet.machine import ETCD_IMAGE, IMAGE
from tests.tools.frameworks import Name, need_image_python, site_packages
from tests.tools.paddlescripts import COLLECTIVE, SERVED
from tests.tools.waiting import eventually

SPEC = f"""\
name: NAME
framework: paddle
image: {IMAGE}
pull: never
script: train.py
code: .
nodes: 2
checkpoint: CHECKPOINTS
stop_grace_period: 5s
recovery: {{host_timeout: 20s, max_restarts: 9, standby: off}}
volumes: ["PACKAGES:/packages:ro", "STANDINS:/standins:ro"]
env:
  PYTHONPATH: /standins:/packages
  OMP_NUM_THREADS: "1"
  STEPS: "100000"
  DELAY: "0.05"
  HTTP_PROXY: http://10.9.9.9:1   # Paddle's nodes meet through HTTP
  POD_IP: 10.9.9.9
"""
# Does what servers and trainers of Paddle do with the variables that they go by. Any process of a server or a trainer of
# the job that cannot reach its servers fails.
ROLES = """\
import os, socket, time
kept, me, count = os.environ["JOBCTL_CHECKPOINT_DIR"], os.environ.get("PADDLE_TRAINER_ID"), os.environ["PADDLE_TRAINERS_NUM"]
if os.environ["TRAINING_ROLE"] == "PSERVER":
    listening, links = socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"]))), []
    while True:
        links.append(listening.accept())
servers = [one.rsplit(":", 1) for one in os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")]
links = [socket.create_connection((host, int(port))) for host, port in servers]
step = 0
while not os.path.exists(os.path.join(kept, "end")):
    for link in links:
        link.sendall(b".")
    step += 1
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
    time.sleep(0.05)
print("final", me, count, flush=True)
"""
# Does what ranks of Paddle do with the variables that they go by: rank 0 makes no step without the others.
RANKS = """\
import os, socket, time
kept, me, world = os.environ["JOBCTL_CHECKPOINT_DIR"], os.environ["PADDLE_TRAINER_ID"], os.environ["PADDLE_TRAINERS_NUM"]
ends = [one.rsplit(":", 1) for one in os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")]
host, port = ends[int(me)]
listening = socket.create_server((host, int(port)))
assert os.environ["PADDLE_CURRENT_ENDPOINT"] == host + ":" + port
if me == "0":
    links = [listening.accept()[0] for _ in ends[1:]]
while me != "0":
    try:
        links = [socket.create_connection((ends[0][0], int(ends[0][1])))]
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
step, said = 0, []
while b"e" not in said:
    time.sleep(0.05)
    mine = b"e" if me == "0" and os.path.exists(os.path.join(kept, "end")) else b"."
    for link in links:
        link.sendall(mine)
    said = [mine, *(link.recv(1) for link in links)]
    assert all(said), "another one has gone"
    step += 1
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write(str(step))
print("final", me, "of", world, flush=True)
"""
PS = "mode: ps\nps: {servers: 2, trainers: 3}\n"


@pytest.fixture(scope="module")
def hosts(can_have_fleet: None) -> Iterator[Fleet]:
    """Hosts at 10.N.0.1, 10.N.0.10 and 10.N.0.11: Paddle's own launcher takes the second's processes for the first's."""
    need_image_python()
    names: tuple[Name, ...] = ("paddle", "paddle-ps")
    packages = {name: site_packages(name) for name in names}
    with fleet(3, numbers=(1, 10, 11), lends=packages) as made:
        yield made


class Learner(Jobs):
    """A job of Paddle with a name and a folder of its own."""

    def __init__(self, directory: Path, made: Fleet, name: str, paddle: Name, script: str, more: str = "") -> None:
        super().__init__(directory, made)
        (self.code / "counter.py").unlink()
        (self.code / "train.py").write_text(script)
        text = SPEC.replace("NAME", name).replace("CHECKPOINTS", str(self.checkpoints))
        for word, lent in (("PACKAGES", paddle), ("STANDINS", "standins")):
            text = text.replace(word, str(made.lent(lent)))
        (self.code / "job.yaml").write_text(text + more)

    def lacks(self, *options: str) -> list[tuple[str, str, str]]:
        """What `check` says of the framework in the image."""
        fleet = self.where
        found = json.loads(self.run("check", "job.yaml", *fleet, "-o", "json", *options).stdout)
        return [(f["verdict"], f["code"], f["message"]) for f in found["findings"] if f["check"] == "framework"]

    def home(self, node: int) -> Host:
        """The host of a node."""
        name = next(one["host"] for one in self.status()["nodes"] if one["node"] == node)
        return next(host for host in self.fleet.hosts if host.name == name)

    def run_id(self) -> str:
        """The run's id, as `plan` tells it."""
        done = self.run("plan", "--explain", *self.where)
        return str(re.findall(r"run id (\S+)", done.stdout)[0])

    def table(self, node: int) -> list[str]:
        """The first lines of a node's log, without what aligns their columns."""
        (log,) = self.home(node).home.glob(f".jobctl/*/{self.name}/node-{node}/logs/1/launch.log")
        return [" ".join(line.split()) for line in log.read_text().splitlines()[:6]]

    def down(self) -> None:
        """Take it down, and see that nothing is left."""
        done = self.run("down", *self.where)
        left = [name for names in self.containers() for name in names if f"-{self.name}-" in name]
        files = [path for path in self.files() if self.name in path.parts]
        assert (done.returncode, left, files) == (0, [], []), done.stderr


@pytest.fixture
def learner(tmp_path: Path, hosts: Fleet) -> Iterator[Any]:
    """Makes jobs, which are taken down afterwards."""
    made: list[Learner] = []

    def make(name: str, *args: Any) -> Learner:
        made.append(Learner(tmp_path / name, hosts, name, *args))
        return made[-1]

    yield make
    for one in made:
        one.down()


@pytest.fixture
def by_name(hosts: Fleet) -> Iterator[None]:
    """Hosts that know each other, and themselves, by name."""
    known = "".join(f"{host.address} {host.name}\n" for host in hosts.hosts)
    files = [host.dir / "etc" / "hosts" for host in hosts.hosts]
    before = {path: path.read_text() for path in files}
    for path in files:
        path.write_text("127.0.0.1 localhost\n" + known)
    yield
    for path, text in before.items():
        path.write_text(text)


@pytest.mark.usefixtures("by_name")
def test_collective(learner: Any) -> None:
    """Two ranks on each host, which Paddle's launchers start, find each other; secrets stay in memory. What may die: tests/local.

    That ranks of the real Paddle train together: test_elastic, and the example in tests/cluster. The hosts file has names and no addresses, with which Paddle's launcher would wait for ever.
    """
    job = learner("gang", "paddle", RANKS, "secrets: [TOKEN]\ndevices: cpu:2\n")
    (job.code / "hosts.txt").write_text("".join(f"{host.name}\n" for host in job.fleet.hosts))
    job.environ["TOKEN"] = "s3cret-of-the-test"
    up = job.up("--target", "ssh")  # the other tests here go through Compose
    assert up.returncode == 0, up.stderr
    job.trains(5, 1)
    h1, h10, h11 = job.fleet.hosts
    for host in (h1, h10):
        found = subprocess.run(
            ["grep", "-rl", "s3cret-of-the-test", str(host.home), str(job.directory / "state")],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        assert [Path(path).name for path in found] == ["secrets.json"], found
        assert Path(found[0]).stat().st_mode & 0o777 == 0o600
    logs = "".join(path.read_text(errors="replace") for host in (h1, h10) for path in host.home.rglob("launch.log"))
    assert h10.address in logs
    assert h11.containers() == []
    (job.checkpoints / "end").touch()
    done = job.run("wait", "--timeout", "800s", timeout=820.0)
    assert done.returncode == 0, f"{done.stderr}\n{job.run('events').stdout}"
    assert sorted(re.findall(r"final (\d) of (\d)", job.ok("logs"))) == [(str(rank), "4") for rank in range(4)]


def test_parameter_servers(learner: Any) -> None:
    """A trainer's container dies, then a host with a trainer and a server loses power and comes back; and all end well.

    A host uses the port that servers get on the others. That Paddle's own servers do so, and what the death of one's
    process does: tests/local; that they are reached through a network: tests/cluster.
    """
    job = learner("wide", "paddle-ps", ROLES, PS)
    port, taken = port_of(job.run_id(), 1), job.fleet[1]
    taken.start("listener", ["python3", "-m", "http.server", str(port + 1)])
    eventually(lambda: f":{port + 1} " in taken.run("ss", "-ltn"))
    try:
        up = job.up()
        assert up.returncode == 0, up.stderr
    finally:
        taken.processes.pop("listener").kill()
    state = job.trains(5, 1)
    assert [(n["node"], n["role"], n["host"], len(n["processes"])) for n in state["nodes"]] == [
        (0, "trainer", "h1", 2),
        (1, "trainer", "h10", 1),
        (2, "server", "h1", 1),
        (3, "server", "h10", 1),
    ]
    assert job.table(2) == told([host.address for host in job.fleet.hosts], port)
    job.home(1).docker("kill", "jobctl-wide-1")  # a trainer's container
    eventually(lambda: job.status()["nodes"][1]["restarts"] == 1)
    job.trains(20, 1)
    lost = job.home(3)
    lost.power_off()
    eventually(lambda: job.phase() == "degraded")
    lost.power_on()
    state = job.trains(10, 2)
    assert [node["host"] for node in state["nodes"]] == ["h1", "h10", "h1", "h10"]
    (job.checkpoints / "end").touch()
    done = job.run("wait", "--timeout", "300s", timeout=330.0)
    assert done.returncode == 0, done.stderr
    eventually(lambda: [(n["state"], n["exit_code"]) for n in job.status()["nodes"]] == [("exited", 0)] * 4)
    lines = [json.loads(line) for line in job.ok("logs", "-o", "json").splitlines()]
    finals = sorted(line["line"].split()[:3] for line in lines if line["line"].startswith("final "))
    assert finals == [["final", str(rank), "3"] for rank in range(3)]


def told(addresses: list[str], port: int) -> list[str]:
    """What the log of each node shows of the whole job."""
    one, ten, _ = addresses
    rows = [
        ("NODE", "ROLE", "HOST", "ADDRESS", "RANKS", "PORTS"),
        ("0", "trainer", "h1", one, "0-1", f"{port + 2},{port + 3}"),
        ("1", "trainer", "h10", ten, "2", str(port + 3)),
        ("2", "server", "h1", one, "0", str(port + 1)),
        ("3", "server", "h10", ten, "1", str(port + 2)),
    ]
    return [f"wide, generation 1: 4 nodes, which meet at {one}:{port}", *(" ".join(row) for row in rows)]


ELASTIC = f"etcd: {{managed: {{replicas: 3, image: {ETCD_IMAGE}}}}}\npaddle: {{elastic_timeout: 10s}}\n"


class Elastic(Learner):
    """A job whose nodes come and go."""

    def goes_on(self, count: int, since: int) -> int:
        """Wait until that many nodes have gone 20 steps further than `since`; return how far they are."""

        def there() -> int | None:
            steps = [report["progress"] or 0 for report in self.reports() if report["state"] == "running"]
            far = len(steps) == count and min(steps) > since + 20 and max(steps) - min(steps) < 20
            return max(steps) if far else None

        try:
            return eventually(there, 400) or 0
        except AssertionError:
            raise AssertionError(f"{self.status()}\n{self.ok('events')}\n{self.ok('logs', '--tail', '20')}") from None


def test_check_finds_what_a_paddle_lacks(tmp_path: Path, hosts: Fleet) -> None:
    """What was built without servers, lets trainers go on before servers, or cannot speak to etcd, is told before."""
    race = PS.replace("trainers: 3", "trainers: 3, gloo: 2")
    served = Learner(tmp_path / "served", hosts, "served", "paddle-ps", SERVED, race)
    alone = Learner(
        tmp_path / "alone", hosts, "alone", "paddle-ps", COLLECTIVE, "etcd: {endpoints: ['10.9.9.9:2379']}\n"
    )
    built = Learner(tmp_path / "built", hosts, "built", "paddle", COLLECTIVE, PS + "setup: pip install paddlepaddle\n")
    for job in (served, alone, built):
        spec = job.code / "job.yaml"
        spec.write_text(spec.read_text().replace("nodes: 2", "nodes: 1"))
        # One host, so that Paddle is imported once.
        listed = job.code / "hosts.txt"
        listed.write_text(listed.read_text().splitlines(keepends=True)[0])
    told = "with `ps.gloo: 2`, trainers of Paddle 3.0.0 do not wait for servers"
    assert served.lacks("--deep") == [("ok", None, "paddle 3.0.0"), ("error", "gloo-race", told)]
    told = "there is no `etcd3`, through which Paddle speaks to etcd"
    assert alone.lacks() == [("error", "etcd-client-missing", told)]
    said = "Paddle 3.3.1 was built without parameter servers (unless `setup` brings it)"
    assert built.lacks() == [("warning", "ps-core-missing", said)]


@pytest.fixture
def behind_proxies(hosts: Fleet) -> Iterator[None]:
    """Has the engines' clients give every container proxies, as companies do."""
    folders = [host.home / ".docker" for host in hosts.hosts]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text('{"proxies": {"default": {"httpProxy": "http://10.9.9.9:1"}}}')
    yield
    for folder in folders:
        (folder / "config.json").unlink()


@pytest.mark.usefixtures("behind_proxies")
def test_elastic(tmp_path: Path, hosts: Fleet) -> None:
    """A host is cut off for good, and given back: 2 nodes train, then 1, then 2. What dies on a host: tests/local.

    Their names mean 127.0.1.1 on the hosts, and what they say to each other and to etcd must not go to the proxies.
    """
    job = Elastic(tmp_path / "elastic", hosts, "elastic", "paddle", COLLECTIVE, ELASTIC)
    text = (job.code / "job.yaml").read_text().replace("nodes: 2", 'nodes: "1:2"')
    (job.code / "job.yaml").write_text(text.replace("host_timeout: 20s", "host_timeout: 10s"))
    try:
        up = job.up()
        assert up.returncode == 0, up.stderr
        reached = job.goes_on(2, 0)
        names = [host.run("getent", "hosts", host.name).split()[0] for host in hosts.hosts]
        proxies = [job.home(n).docker("exec", f"jobctl-elastic-{n}", "printenv", "http_proxy") for n in (0, 1)]
        assert (names, [proxy.strip() for proxy in proxies]) == (["127.0.1.1"] * 3, ["http://10.9.9.9:1"] * 2)
        away, before = job.home(1), job.order()["number"]
        away.pull_cable()
        eventually(lambda: job.order()["number"] > before)  # it is left out: before, all may look as it was
        reached = job.goes_on(1, reached)
        assert job.status()["replicas"] == "1[1:2]"
        away.plug_cable()
        job.goes_on(2, reached)
        assert int((job.checkpoints / "state").read_text().split()[0]) > reached
    finally:
        job.down()
