"""A cluster's part, played for the manifests of `operator: none`: pods, volumes, names, and the Job controller.

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
from collections.abc import Callable, Mapping
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
while [ "$1" != -- ]; do
    mkdir -p "$ROOT$2"; mount --bind "$1" "$ROOT$2"; shift 2
done
shift
unset HOSTS
root=$ROOT; unset ROOT
exec chroot "$root" "$@"
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
    """One pod of a Job: `attempt` counts how often its index was started."""

    cluster: Cluster
    job: dict[str, Any]
    index: int
    attempt: int = 0
    process: subprocess.Popen[bytes] | None = None
    phase: str = "Pending"
    codes: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.job['metadata']['name']}-{self.index}"

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
        spec = self.job["spec"]["template"]["spec"]
        volumes = {volume["name"]: self.volume(volume) for volume in spec.get("volumes", ())}
        for container in spec.get("initContainers", ()):
            made = self.run(container, volumes, "init.log")
            assert made.wait() == 0, (self.folder / "init.log").read_text()
        (container,) = spec["containers"]
        self.process = self.run(container, volumes, "pod.log")

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

    def run(self, container: dict[str, Any], volumes: Mapping[str, Path], log: str) -> subprocess.Popen[bytes]:
        env = {"PATH": os.environ["PATH"], "HOME": "/root", "JOB_COMPLETION_INDEX": str(self.index)}
        for variable in container.get("env", ()):
            if "valueFrom" in variable:
                assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
                env[variable["name"]] = self.address
            else:
                env[variable["name"]] = expanded(variable["value"], env)
        argv = [expanded(word, env) for word in (*container["command"], *container.get("args", ()))]
        mounts = [
            word
            for mount in container.get("volumeMounts", ())
            for word in (str(volumes[mount["name"]]), mount["mountPath"])
        ]
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", _ENTER, "sh", *mounts, "--"]
        with (self.folder / log).open("wb") as out:
            return subprocess.Popen(
                [*enter, *argv],
                env={**env, "ROOT": str(root), "HOSTS": str(self.cluster.hosts)},
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
        self.jobs = [one for one in made if one["kind"] == "Job"]
        self.hosts = root / "hosts"
        self.pods = [Pod(self, job, index) for job in self.jobs for index in range(job["spec"]["completions"])]
        self.failed: set[str] = set()
        self.disrupted: set[str] = set()

    def write_hosts(self) -> None:
        """Give each pod that runs its names, as the headless Service does; in place, pods see this very file."""
        lines = ["127.0.0.1 localhost"]
        for pod in self.pods:
            service = pod.job["spec"]["template"]["spec"]["subdomain"]
            assert self.objects["Service", service]["spec"]["clusterIP"] == "None"
            if pod.phase == "Running":
                lines.append(f"{pod.address} {pod.name}.{service}")
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

    def finish(self, seconds: float = 60.0) -> dict[str, list[int]]:
        """Play on until nothing runs; return the exit codes of each pod's attempts."""
        self.until(lambda: all(pod.phase in ("Succeeded", "Failed") for pod in self.pods), seconds)
        return {pod.name: pod.codes for pod in self.pods}

    def story(self) -> str:
        """Return what every pod has printed."""
        logs = sorted(self.root.glob("pods/*/*/*.log")) + sorted(self.root.glob("pods/*/*/node/logs/*/*log*"))
        return "\n".join(f"== {p}\n{p.read_text(errors='replace')}" for p in logs if p.suffix != ".idx")

    def close(self) -> None:
        """Leave nothing behind."""
        for pod in self.pods:
            pod.kill()
        shutil.rmtree(self.root / "pods", ignore_errors=True)


def kill_process(pod: Pod, word: str, number: int = signal.SIGKILL) -> None:
    """Kill the processes in a pod whose command line has `word`, from outside."""
    assert pod.process is not None
    for pid in _below(pod.process.pid):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if word in line and "launcher.py" not in line:
            os.kill(pid, number)


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
