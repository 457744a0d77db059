"""A cluster's part, played for rendered manifests: pods, volumes, names, the Job controller, and what operators tell pods.

Each pod is a mount and a process namespace of its own, with the machine's files and, where its manifest says so, volumes;
an address of 127.0.0.0/8, another one each time it is started; and names by a hosts file. What runs in it is exactly what
the manifest says, with `$(VAR)` filled in as Kubernetes does. Killing it kills all that it holds, as a node's end does.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# Runs as root in new namespaces: a root directory that is the machine's, but for what is mounted below.
_ENTER = """\
mount --make-rprivate /
mount -t tmpfs tmpfs "$ROOT"
for path in /*; do
    if [ -L "$path" ]; then cp -P "$path" "$ROOT$path"
    elif [ "$path" = /proc ]; then mkdir "$ROOT$path"; mount -t proc proc "$ROOT$path"
    elif [ -d "$path" ]; then mkdir "$ROOT$path"; mount --rbind "$path" "$ROOT$path"; fi
done
mount --bind "$HOSTS" "$ROOT/etc/hosts"
hostname "$NAME"
while [ "$1" != -- ]; do
    mkdir -p "$ROOT$2"; mount --bind "$1" "$ROOT$2"; shift 2
done
shift
unset HOSTS NAME
root=$ROOT; unset ROOT
work=$WORK; unset WORK
exec chroot "$root" sh -c 'cd -- "$0" && exec "$@"' "$work" "$@"
"""


def needs_namespaces() -> str | None:
    """Say why no pods can be made here, None if they can."""
    if os.geteuid() != 0:
        return "pods are made by root"
    done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else f"no namespaces here: {done.stderr.decode().strip()}"


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Fill in `$(VAR)` as Kubernetes does; `$$` is a dollar."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)


@dataclass
class Pod:
    """One pod: `attempt` counts how often it was started; `told` is what whoever made it tells its first container."""

    cluster: Cluster
    job: dict[str, Any]
    name: str
    template: dict[str, Any]
    told: Callable[[Pod], dict[str, str]]
    attempt: int = 0
    process: subprocess.Popen[bytes] | None = None
    phase: str = "Pending"
    codes: list[int] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where its volumes lie, those of this attempt."""
        return self.cluster.root / "pods" / self.name / str(self.attempt)

    @property
    def address(self) -> str:
        number = self.cluster.pods.index(self)
        return f"127.{self.cluster.network}.{self.attempt + 1}.{number + 2}"

    def start(self) -> None:
        """Start the pod: its init containers one after the other, then its container."""
        self.attempt += 1
        self.phase = "Running"
        self.cluster.write_hosts()
        spec = self.template["spec"]
        volumes = {volume["name"]: self.volume(volume) for volume in spec.get("volumes", ())}
        for container in spec.get("initContainers", ()):
            made = self.run(container, volumes, "init.log")
            assert made.wait() == 0, (self.folder / "init.log").read_text()
        (container,) = spec["containers"]
        self.process = self.run(container, volumes, "pod.log", self.told(self))

    def volume(self, volume: dict[str, Any]) -> Path:
        """Return the folder of a volume, with what is in it."""
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        path = self.folder / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            made = self.cluster.objects["ConfigMap", volume["configMap"]["name"]]
            for name, text in made.get("data", {}).items():
                (path / name).write_text(text)
            for name, text in made.get("binaryData", {}).items():
                (path / name).write_bytes(base64.b64decode(text))
        elif "secret" in volume:
            assert ("Secret", volume["secret"]["secretName"]) in self.cluster.objects
            # As the kubelet does it: the values in a hidden folder, links to them beside it.
            (path / "..data").mkdir()
            for name, value in self.cluster.secrets.items():
                (path / "..data" / name).write_text(value)
                (path / name).symlink_to(f"..data/{name}")
        else:
            assert "emptyDir" in volume
        return path

    def run(
        self, container: dict[str, Any], volumes: Mapping[str, Path], log: str, told: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a container. Arguments refer to all variables, a variable to those before it: what is told comes last."""
        env = {"PATH": os.environ["PATH"], "HOME": "/root"}
        for variable in container.get("env", ()):
            if "valueFrom" in variable:
                assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
                env[variable["name"]] = self.address
            else:
                env[variable["name"]] = expanded(variable["value"], env)
        env.update(told or {})
        argv = [expanded(word, env) for word in (*container["command"], *container.get("args", ()))]
        mounts = [
            word
            for mount in container.get("volumeMounts", ())
            for word in (str(volumes[mount["name"]]), mount["mountPath"])
        ]
        work = container.get("workingDir", "/")
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        enter = [
            "unshare",
            "--mount",
            "--pid",
            "--uts",
            "--fork",
            "--kill-child",
            "sh",
            "-ec",
            _ENTER,
            "sh",
            *mounts,
            "--",
        ]
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(
                [*enter, *argv],
                env={**env, "ROOT": str(root), "HOSTS": str(self.cluster.hosts), "NAME": self.name, "WORK": work},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End all that it holds at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def printed(self) -> str:
        """Return what its container has printed: all that a cluster would show."""
        return (self.folder / "pod.log").read_text(errors="replace")

    def log(self, name: str = "workerlog.0", generation: int = 1, attempt: int | None = None) -> str:
        """Return a log of one of its processes."""
        folder = self.folder.parent / str(attempt or self.attempt)
        path = folder / "node" / "logs" / str(generation) / name
        return path.read_text(errors="replace") if path.exists() else ""


class Cluster:
    """The objects of a job, and what becomes of them."""

    def __init__(self, root: Path, manifests: Path, network: int, secrets: Mapping[str, str] | None = None) -> None:
        self.root, self.network, self.secrets = root, network, secrets or {}
        made = [yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted(manifests.iterdir())]
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in made}
        self.hosts = root / "hosts"
        self.pods: list[Pod] = []
        for one in made:
            for name, template, told in pods_of(one, self):
                self.pods.append(Pod(self, one, name, template, told))
        self.failed: set[str] = set()
        self.disrupted: set[str] = set()

    def write_hosts(self) -> None:
        """Give each pod that runs its names, as the headless Service does; in place, pods see this very file."""
        lines = ["127.0.0.1 localhost"]
        for pod in self.pods:
            service = pod.template["spec"].get("subdomain")
            if pod.job["kind"] == "Job":
                assert self.objects["Service", service]["spec"]["clusterIP"] == "None"
            if pod.phase == "Running":
                # Kubeflow makes a service for each pod; JobSet one for all, called after the job.
                lines.append(f"{pod.address} {pod.name}.{service or pod.job['metadata']['name']} {pod.name}")
        with self.hosts.open("r+" if self.hosts.exists() else "w") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.truncate()

    def start(self) -> None:
        """Start all pods, as the Job controller does at first."""
        for pod in self.pods:
            pod.start()

    def look(self) -> None:
        """Do what the Job controller does about pods that have ended: `podFailurePolicy`, `backoffLimit`."""
        for pod in self.pods:
            code = pod.process.poll() if pod.process is not None else None
            if code is None or pod.phase != "Running":
                continue
            code = 128 - code if code < 0 else code
            pod.codes.append(code)
            pod.phase = "Succeeded" if code == 0 else "Failed"
            self.write_hosts()
            if code:
                self.after_failure(pod, code)

    def after_failure(self, pod: Pod, code: int) -> None:
        """Start a pod again, or end its Job; what operators do about failures is not played."""
        if pod.job["kind"] != "Job":
            return
        spec = pod.job["spec"]
        name = pod.job["metadata"]["name"]
        by_itself = next(rule["onExitCodes"] for rule in spec["podFailurePolicy"]["rules"] if "onExitCodes" in rule)
        assert by_itself["operator"] == "NotIn"
        counted = sum(
            sum(code in by_itself["values"] for code in one.codes)
            for one in self.pods
            if one.job is pod.job and one.name not in self.disrupted
        )
        if code not in by_itself["values"] or counted > spec["backoffLimit"]:
            self.failed.add(name)
            for one in self.pods:
                if one.job is pod.job and one.phase == "Running":
                    one.kill()
        elif name not in self.failed:
            pod.start()

    def until(self, look: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Play on until `look` is true."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, f"not within {seconds} s:\n{self.story()}"
            self.look()
            time.sleep(0.05)
        return found

    def finish(self, seconds: float = 60.0, *, but: str = "no pod") -> dict[str, list[int]]:
        """Play on until nothing runs but pods with a word in their names; return the exit codes of each pod's attempts."""
        pods = [pod for pod in self.pods if but not in pod.name]
        self.until(lambda: all(pod.phase in ("Succeeded", "Failed") for pod in pods), seconds)
        return {pod.name: pod.codes for pod in pods}

    def story(self) -> str:
        """Return what every pod has printed."""
        logs = sorted(self.root.glob("pods/*/*/*.log")) + sorted(self.root.glob("pods/*/*/node/logs/*/*log*"))
        return "\n".join(f"== {p}\n{p.read_text(errors='replace')}" for p in logs if p.suffix != ".idx")

    def close(self) -> None:
        """Leave nothing behind."""
        for pod in self.pods:
            pod.kill()
        shutil.rmtree(self.root / "pods", ignore_errors=True)


# Who makes which pods, and what they are told: https://kubernetes.io/docs/concepts/workloads/controllers/job/, and the
# operators' sources as named in render/operators.py.

Told = Callable[[Pod], dict[str, str]]
Made = Iterator[tuple[str, dict[str, Any], Told]]


def pods_of(made: dict[str, Any], cluster: Cluster) -> Made:
    """Yield the pods that an object leads to: name, template, and variables."""
    find = _MAKERS.get((made["apiVersion"].partition("/")[0], made["kind"]))
    if find is not None:
        yield from find(made, cluster)


def _indexed_job(made: dict[str, Any], cluster: Cluster) -> Made:
    for index in range(made["spec"]["completions"]):
        name = f"{made['metadata']['name']}-{index}"
        yield name, made["spec"]["template"], lambda pod, index=index: {"JOB_COMPLETION_INDEX": str(index)}


def _pytorch_job(made: dict[str, Any], cluster: Cluster) -> Made:
    name, replicas = made["metadata"]["name"], made["spec"]["pytorchReplicaSpecs"]
    total = sum(one["replicas"] for one in replicas.values())
    rank = 0
    for role, one in replicas.items():
        assert [c["name"] for c in one["template"]["spec"]["containers"]] == ["pytorch"]
        for index in range(one["replicas"]):
            told = {"PYTHONUNBUFFERED": "1", "WORLD_SIZE": str(total), "RANK": str(rank)}
            told |= {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": "23456"}
            if "elasticPolicy" in made["spec"]:
                policy = made["spec"]["elasticPolicy"]
                told = {
                    "PYTHONUNBUFFERED": "1",
                    "PET_RDZV_ENDPOINT": f"{name}-worker-0:23456",
                    "PET_RDZV_BACKEND": policy["rdzvBackend"],
                    "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
                    "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
                }
            yield f"{name}-{role.lower()}-{index}", one["template"], lambda pod, told=told: told
            rank += 1


def _kubeflow_paddle_job(made: dict[str, Any], cluster: Cluster) -> Made:
    name, (one,) = made["metadata"]["name"], made["spec"]["paddleReplicaSpecs"].values()
    assert [c["name"] for c in one["template"]["spec"]["containers"]] == ["paddle"]
    for index in range(one["replicas"]):

        def told(pod: Pod, index: int = index) -> dict[str, str]:
            return {
                "PYTHONUNBUFFERED": "1",
                "PADDLE_JOB_ID": name,
                "PADDLE_NNODES": str(one["replicas"]),
                "PADDLE_MASTER": f"{pod.address if index == 0 else f'{name}-worker-0'}:36543",
            }

        yield f"{name}-worker-{index}", one["template"], told


def _paddle_operator(made: dict[str, Any], cluster: Cluster) -> Made:
    name, spec = made["metadata"]["name"], made["spec"]
    roles = {"ps": "PSERVER", "worker": "TRAINER"}

    def endpoints(role: str) -> str:
        return ",".join(f"{pod.address}:36000" for pod in cluster.pods if pod.name.startswith(f"{name}-{role}-"))

    for role, training in roles.items():
        for index in range(spec.get(role, {}).get("replicas", 0)):

            def told(pod: Pod, index: int = index, training: str = training) -> dict[str, str]:
                return {
                    "POD_IP": pod.address,
                    "PADDLE_TRAINER_ID": str(index),
                    "TRAINING_ROLE": training,
                    "PADDLE_TRAINING_ROLE": training,
                    "TRAINER_PORTS_NUM": "20",
                    "PADDLE_PORT": "36000",
                    "PADDLE_PSERVERS_IP_PORT_LIST": endpoints("ps"),
                    "PADDLE_TRAINER_ENDPOINTS": endpoints("worker"),
                    "PADDLE_TRAINERS": str(spec["worker"]["replicas"]),
                    "PADDLE_TRAINERS_NUM": str(spec["worker"]["replicas"]),
                }

            yield f"{name}-{role}-{index}", spec[role]["template"], told


def _train_job(made: dict[str, Any], cluster: Cluster) -> Made:
    name, trainer = made["metadata"]["name"], made["spec"]["trainer"]
    runtime = cluster.objects[made["spec"]["runtimeRef"]["kind"], made["spec"]["runtimeRef"]["name"]]
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    template = job["template"]["spec"]["template"]
    assert [c["name"] for c in template["spec"]["containers"]] == ["node"]
    for index in range(trainer["numNodes"]):
        told = {
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
            "PET_MASTER_PORT": "29500",
        }
        yield f"{name}-{job['name']}-0-{index}", template, lambda pod, told=told: told


_MAKERS: dict[tuple[str, str], Callable[[dict[str, Any], Cluster], Made]] = {
    ("batch", "Job"): _indexed_job,
    ("kubeflow.org", "PyTorchJob"): _pytorch_job,
    ("kubeflow.org", "PaddleJob"): _kubeflow_paddle_job,
    ("batch.paddlepaddle.org", "PaddleJob"): _paddle_operator,
    ("trainer.kubeflow.org", "TrainJob"): _train_job,
}


def kill_process(pod: Pod, word: str, number: int = signal.SIGKILL) -> None:
    """Kill the processes in a pod whose command line has `word`, from outside."""
    assert pod.process is not None
    for pid in _below(pod.process.pid):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if word in line and "launcher.py" not in line:
            os.kill(pid, number)


def circle_of(pod: Pod) -> int:
    """Return the process in a pod by which its launcher hears the others: it has a socket at the pod's address."""
    assert pod.process is not None
    own = "".join(f"{int(part):02X}" for part in reversed(pod.address.split(".")))
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].startswith(f"{own}:")}
    for pid in _below(pod.process.pid):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if os.path.islink(entry) and os.readlink(entry) in sockets:
                return pid
    raise LookupError(f"nobody in {pod.name} listens at {pod.address}")


def runs(pod: Pod, word: str) -> bool:
    """Say whether a process with `word` in its command line lives in a pod."""
    assert pod.process is not None
    for pid in _below(pod.process.pid):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line and "launcher.py" not in line:
            return True
    return False


def _below(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *_below(int(entry.name))]
    return found
