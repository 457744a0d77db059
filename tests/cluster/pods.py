"""A cluster's part, played for rendered manifests: pods, volumes, names, and the Job controller.

What runs in a pod is exactly what the manifest says, with `$(VAR)` filled in as Kubernetes does. Where it runs is a
`Machine`'s business: in namespaces of this machine (namespaces.py), or in containers of a fleet's hosts (containers.py).
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from .pod_processes import first_of

Object = dict[str, Any]


class Process(Protocol):
    """A container that was started, as `subprocess.Popen` has it. `pid` is of what holds all of its processes."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None:
        """End all that it holds at once, as a node's end does."""


@dataclass(frozen=True)
class Mount:
    """A folder of this machine at a place in a container; without a `source`, memory of at most `size` bytes."""

    target: str
    source: Path | None = None
    read_only: bool = False
    size: int | None = None


@dataclass(frozen=True)
class Container:
    """What is to run: nothing of Kubernetes is left in it."""

    image: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    mounts: tuple[Mount, ...]
    workdir: str | None
    user: str | None


class Machine(Protocol):
    """Where pods run."""

    def overrides(self, framework: str | None) -> dict[str, str]:
        """Return what a spec has to say (`--set`) so that its pods find a Python with the framework."""

    def address(self) -> str:
        """Return an address that no pod has had."""

    def begin(self, pod: Pod) -> None:
        """Give a pod its network, under its address and name."""

    def run(self, pod: Pod, container: Container, log: Path) -> Process:
        """Start a container in a pod; what it prints goes to the end of `log`."""

    def end(self, pod: Pod) -> None:
        """Leave nothing of a pod that has ended."""


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Fill in `$(VAR)` as Kubernetes does; `$$` is a dollar."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)


_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def _bytes(size: str) -> int:
    return int(size[:-2]) * _UNITS[size[-2:]] if size[-2:] in _UNITS else int(size)


@dataclass
class Pod:
    """One pod: `attempt` counts how often it was started; `told` is what whoever made it tells its first container."""

    cluster: Cluster
    job: Object
    name: str
    template: Object
    told: Callable[[Pod], dict[str, str]]
    attempt: int = 0
    address: str = ""
    process: Process | None = None
    phase: str = "Pending"
    codes: list[int] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where its volumes lie, those of this attempt."""
        return self.cluster.root / "pods" / self.name / str(self.attempt)

    def start(self) -> None:
        """Start the pod."""
        self.begin()
        self.enter()

    def begin(self) -> None:
        """Give it an address and its names, as long before its containers run."""
        self.attempt += 1
        self.folder.mkdir(parents=True)
        self.address = self.cluster.machine.address()
        self.phase = "Running"
        self.cluster.write_hosts()
        self.cluster.machine.begin(self)

    def enter(self) -> None:
        """Run its init containers one after the other, then its container."""
        spec = self.template["spec"]
        volumes = {volume["name"]: self.volume(volume) for volume in spec.get("volumes", ())}
        for container in spec.get("initContainers", ()):
            made = self.run(container, volumes, "init.log")
            assert made.wait() == 0, (self.folder / "init.log").read_text()
        (container,) = spec["containers"]
        self.process = self.run(container, volumes, "pod.log", self.told(self))

    def volume(self, volume: Object) -> Mount:
        """Return a volume, with what is in it, mounted nowhere yet."""
        if "hostPath" in volume:
            path = Path(volume["hostPath"]["path"])
            assert path.is_dir() or volume["hostPath"].get("type") != "Directory"
            return Mount("", path)
        empty = volume.get("emptyDir", {})
        if empty.get("medium") == "Memory":
            return Mount("", size=_bytes(empty["sizeLimit"]) if "sizeLimit" in empty else None)
        path = self.folder / volume["name"]
        path.mkdir()
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
        return Mount("", path)

    def run(
        self, container: Object, volumes: Mapping[str, Mount], log: str, told: Mapping[str, str] | None = None
    ) -> Process:
        """Start a container. Arguments refer to all variables, a variable to those before it: what is told comes last."""
        env: dict[str, str] = {}
        for variable in container.get("env", ()):
            env[variable["name"]] = self.value(variable, env)
        env.update(told or {})
        mounts = [
            Mount(mount["mountPath"], volume.source, mount.get("readOnly", False), volume.size)
            for mount in container.get("volumeMounts", ())
            for volume in [volumes[mount["name"]]]
        ]
        runs = Container(
            image=container["image"],
            argv=tuple(expanded(word, env) for word in (*container["command"], *container.get("args", ()))),
            env=env,
            mounts=tuple(mounts),
            workdir=container.get("workingDir"),
            user=self.user(),
        )
        return self.cluster.machine.run(self, runs, self.folder / log)

    def value(self, variable: Object, before: Mapping[str, str]) -> str:
        """Return the value of a variable."""
        source = variable.get("valueFrom")
        if source is None:
            return expanded(variable["value"], before)
        if "secretKeyRef" in source:
            assert ("Secret", source["secretKeyRef"]["name"]) in self.cluster.objects
            return self.cluster.secrets[source["secretKeyRef"]["key"]]
        assert source == {"fieldRef": {"fieldPath": "status.podIP"}}
        return self.address

    def user(self) -> str | None:
        """Return who its processes are."""
        identity = self.template["spec"].get("securityContext", {})
        numbers = [str(identity[name]) for name in ("runAsUser", "runAsGroup") if name in identity]
        return ":".join(numbers) or None

    def kill(self) -> None:
        """End all that it holds at once."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def terminate(self) -> int:
        """Ask it to end, as whoever deletes a pod does, and return its exit code."""
        assert self.process is not None
        os.kill(first_of(self.process), signal.SIGTERM)
        return self.process.wait(self.template["spec"]["terminationGracePeriodSeconds"] + 60.0)

    def printed(self) -> str:
        """Return what its container has printed: all that a cluster would show."""
        return (self.folder / "pod.log").read_text(errors="replace")

    def log(self, name: str = "workerlog.0", generation: int = 1, attempt: int | None = None) -> str:
        """Return a log of one of its processes."""
        folder = self.folder.parent / str(attempt or self.attempt)
        path = folder / "node" / "logs" / str(generation) / name
        return path.read_text(errors="replace") if path.exists() else ""


# Who makes which pods of an object, and what they are told.
Told = Callable[[Pod], dict[str, str]]
Made = Iterator[tuple[str, Object, Told]]


class Cluster:
    """The objects of a job, and what becomes of them."""

    def __init__(
        self,
        root: Path,
        manifests: Path,
        machine: Machine,
        pods_of: Callable[[Object, Cluster], Made],
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self.root, self.machine, self.secrets = root, machine, secrets or {}
        made = [yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted(manifests.iterdir())]
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in made}
        self.hosts = root / "hosts"
        self.pods = [
            Pod(self, one, name, template, told) for one in made for name, template, told in pods_of(one, self)
        ]
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
        """Start all pods, as their controller does at first: what they are told is told when all have addresses."""
        for pod in self.pods:
            pod.begin()
        with ThreadPoolExecutor() as pool:
            list(pool.map(Pod.enter, self.pods))

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

    def suspend(self) -> list[int]:
        """Do what controllers do when a job is suspended: end all pods, and return their exit codes."""
        with ThreadPoolExecutor() as pool:
            codes = list(pool.map(Pod.terminate, self.pods))
        for pod in self.pods:
            pod.process, pod.phase = None, "Pending"
        return codes

    def until(self, look: Callable[[], Any], seconds: float = 180.0) -> Any:
        """Play on until `look` is true."""
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, f"not within {seconds} s:\n{self.story()}"
            self.look()
            time.sleep(0.05)
        return found

    def finish(self, seconds: float = 180.0) -> dict[str, list[int]]:
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
            self.machine.end(pod)
        shutil.rmtree(self.root / "pods", ignore_errors=True)
