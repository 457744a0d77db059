"""What the processes of a generation are started with: argv, environment and folders."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.order.control import etcd_name
from jobctl.jobspec.launcher.order.launch import Slot, fill
from jobctl.jobspec.launcher.process.task import ProcessTask
from jobctl.jobspec.launcher.run.scratch import make_scratch, make_shared, remove_tree
from jobctl.jobspec.launcher.run.setup import secret_values
from jobctl.jobspec.launcher.standby.messages import Gathering
from jobctl.jobspec.launcher.system.network import (
    etcd_master,
    in_numbers,
    interface_of,
    is_scrubbed,
    one_that_answers,
    pass_by_proxies,
    port_range,
)

if TYPE_CHECKING:
    from typing import Dict, List, Optional, Sequence

    from jobctl.jobspec.launcher.node.agent import Launcher
    from jobctl.jobspec.launcher.order.launch import Value
    from jobctl.jobspec.launcher.order.order import Member, Order
ROOM_TRIED = 4096  # bytes, more than the record of a process has
SCRIPT = [os.path.abspath(__file__), "process"]  # this program as a script: the guard of one process


class Folders:
    """The folders of one generation on this node. What another generation of that number has left there is removed."""

    def __init__(self, node: str, generation: int) -> None:
        number = str(generation)
        self.node = node
        self.logs = os.path.join(node, "logs", number)
        self.progress = os.path.join(node, "progress", number)
        self.records = os.path.join(node, "processes", number)
        for folder in (self.progress, self.records):
            remove_tree(folder)
        for folder in (self.logs, self.progress, self.records):
            os.makedirs(folder, exist_ok=True)

    def try_out(self) -> None:
        """Write a file where the guards of processes write theirs, and remove it. Raises OSError."""
        for folder in (self.logs, self.records):
            path = os.path.join(folder, ".tried")
            try:
                with open(path, "wb") as file:
                    file.write(bytes(ROOM_TRIED))
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), folder) from error
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)


class Environment:
    """The argv and the environment of each process of a generation on this node."""

    def __init__(self, launcher: Launcher, order: Order, member: Member, folders: Folders) -> None:
        self.launch, self.order, self.member, self.program = launcher.launch, order, member, launcher.program
        self.folders = folders
        peers = order.of_role(self.launch.role)
        self.first_rank = sum(m.nproc for m in peers if m.rank < member.rank)
        self.rank_names = self.launch.rank_env
        in_memory = Slot("scratch") in self.launch.start
        self.scratch = make_scratch(launcher.dir) if in_memory else ""
        self.shared = make_shared(order, launcher.dir) if self.launch.shares_folder else ""
        self.numbered = in_numbers(order, launcher.pause)
        self.slots = self.fill_slots()
        self.environ = self.make_environ(secret_values(self.launch.secrets, launcher.secrets))

    def fill_slots(self) -> Dict[str, str]:
        """Return what only the generation knows, by the names of plan.types.SlotName."""
        order = self.numbered
        address = next(m.address for m in order.members if m.node == self.member.node)
        at, peers, etcd = order.rendezvous, order.of_role(self.launch.role), self.etcd_member(address)
        servers, scheduler = order.endpoints("server"), (order.endpoints("scheduler") or [":"])[0].rpartition(":")
        return {
            "address": address,
            "checkpoint_dir": order.checkpoint_dir or "",
            "generation": str(self.order.number),
            "interface": self.launch.interface or interface_of(address) or "",
            "job_size": str(sum(m.nproc for m in order.members)),
            "log_dir": self.folders.logs,
            "master": at.place,
            "master_addr": at.address,
            "master_port": str(at.port),
            "nnodes": str(len(peers)),
            "node_rank": str([m.node for m in peers].index(self.member.node)),
            "port_range": port_range(order.job, self.member.node),
            "etcd_master": etcd_master(etcd),
            "etcd_member": etcd,
            "etcd_job": etcd_name(order.job, order.began),
            "rdzv_id": at.id,
            "run_id": order.run_id,
            "scratch": self.scratch,
            "scheduler_address": scheduler[0],
            "scheduler_port": scheduler[2],
            "shared_scratch": self.shared,
            "server_addresses": ",".join(m.address for m in order.of_role("server")),
            "server_port": servers[0].rpartition(":")[2] if servers else "",
            "servers": ",".join(servers),
            "trainer_addresses": ",".join(one.rpartition(":")[0] for one in order.endpoints("trainer")),
            "trainer_count": str(sum(m.nproc for m in order.of_role("trainer"))),
            "trainers": ",".join(order.endpoints("trainer")),
            "world_size": str(sum(m.nproc for m in peers)),
        }

    def etcd_member(self, address: str) -> str:
        """Return the member of etcd for a client that knows but one: that of this host, or the first that answers.

        Which one that is changes from one start to the next: a member may be lost, and the node may have moved.
        """
        launch, own = self.launch, (address, self.member.address)
        asks = Slot("etcd_master") in launch.start or Slot("etcd_member") in [value for _, value in launch.env]
        if launch.etcd is None or not asks:
            return ""
        return one_that_answers(sorted(launch.etcd.endpoints, key=lambda one: one.rpartition(":")[0] not in own))

    def make_environ(self, secrets: Dict[str, str]) -> Dict[str, str]:
        """Return the environment of every process. What it inherits wins over the interface's name, the plan over both."""
        order, launch = self.order, self.launch
        environ = {name: value for name, value in os.environ.items() if not is_scrubbed(name, launch.scrub)}
        interface = self.slots["interface"]
        for name in launch.interface_env:
            if interface and name not in environ:
                environ[name] = interface
        environ.update({name: self.value(value) for name, value in launch.env})
        environ.update(secrets)
        environ.update(
            JOBCTL_JOB=order.job,
            JOBCTL_RUN_ID=order.run_id,
            JOBCTL_NODE=str(launch.node),
            JOBCTL_NODES=str(len(order.members)),
            JOBCTL_ROLE=launch.role,
            JOBCTL_GENERATION=str(self.order.number),
        )
        if self.slots["checkpoint_dir"]:
            environ["JOBCTL_CHECKPOINT_DIR"] = self.slots["checkpoint_dir"]
        endpoints = launch.etcd.endpoints if launch.etcd is not None else ()
        etcd = [endpoint.rpartition(":")[0].strip("[]") for endpoint in endpoints]
        nodes = [m.address for m in (*self.numbered.members, *order.members)]
        pass_by_proxies(environ, [*nodes, *etcd])
        if self.launch.start:
            environ["JOBCTL_PROCESS"] = json.dumps(self.task().to_json())
        return environ

    def task(self) -> ProcessTask:
        """Return what the guard of a process has to know."""
        return ProcessTask(
            command=self.launch.command,
            name=self.launch.log_name,
            ranks=self.rank_names,
            logs=self.folders.logs,
            progress=self.folders.progress,
            records=self.folders.records,
            # Kubernetes shows what the first process of a pod prints, and nothing else.
            forward_to="/proc/%d/fd/1" % os.getpid() if self.launch.peer_port else None,
            elsewhere=self.launch.elsewhere or None,
        )

    def meets(self, local: int = 0) -> Optional[str]:
        """Return where the first of the job listens for the framework's launcher, or for a process; None for that, and where none does."""
        launch, before = self.launch, [m.nproc for m in self.order.members if m.rank < self.member.rank]
        values = launch.start or [value for _, value in (*launch.env, *launch.process_env)]
        slots = {value.slot for value in values if isinstance(value, Slot)}
        if "scheduler_port" in slots:
            place = "%s:%s" % (self.slots["scheduler_address"], self.slots["scheduler_port"])
            return place if launch.role != "scheduler" else None
        return self.slots["master"] if slots & {"master", "master_port"} and sum(before) + local > 0 else None

    def gathering(self) -> Gathering:
        """Return how the framework's launchers meet. At 127.0.0.1 each of them takes the place for its own."""
        order = self.numbered
        there = [m.node for m in order.members if m.address == order.rendezvous.address]
        alone = there == [self.member.node] and order.rendezvous.address != "127.0.0.1"
        return Gathering(len(order.members), self.meets(), alone)

    def value(self, value: Value) -> str:
        """Return a value of the plan: text as it is, a slot filled."""
        return fill(value, self.slots)

    def argv(self, values: Sequence[Value]) -> List[str]:
        """Return an argv of the plan; the slot `process` becomes the guard of one process."""
        # A launcher that chooses the interpreter by itself does so by the name's ending: that gets the source.
        prefixes = {"process": self.shim(), "process_script": SCRIPT}
        argv: List[str] = []
        for value in values:
            slot = value.slot if isinstance(value, Slot) else ""
            argv += prefixes[slot] if slot in prefixes else [self.value(value)]
        return argv

    def guard(self) -> List[str]:
        """Return what the framework's launcher starts for each process, begun with nothing where that is its own interpreter."""
        return ["", "-u", *SCRIPT] if Slot("process_script") in self.launch.start else self.shim()

    def shim(self) -> List[str]:
        """Return the argv that runs one process under a guard of its own; what it runs is in JOBCTL_PROCESS.

        Not in argv, because torchrun's parser takes a user's `--log` or `--node` for an abbreviation of its own
        options, even behind the script.
        """
        return [sys.executable, "-S", "-E", self.program, "process"]

    def process_environ(self, local: int) -> Dict[str, str]:
        """Return the environment of process `local` where no framework launcher sets ranks."""
        rank = str(self.first_rank + local)
        ports = self.member.ports or ()
        port = str(ports[local]) if local < len(ports) else ""
        before = [m for m in self.order.members if m.rank < self.member.rank]  # of all roles, trainers first
        job_rank = str(sum(m.nproc for m in before) + local)
        own = {"local_rank": str(local), "rank": rank, "port": port, "job_rank": job_rank, "device": self.device(local)}
        own["endpoint"] = "%s:%s" % (self.slots["address"], port)
        slots = {**self.slots, **own}
        environ = {**self.environ, **dict(zip(self.rank_names, (rank, str(local))))}
        environ.update(LOCAL_WORLD_SIZE=str(self.launch.nproc), WORLD_SIZE=self.slots["world_size"])
        environ.update((name, fill(value, slots)) for name, value in self.launch.process_env)
        return environ

    def device(self, local: int) -> str:
        """Return the device of a process: the next of those that a variable of the node lists, or of all by its number.

        The plan sets such a list, or Slurm or the image does. Devices beyond its end are not the job's: then none is seen.
        """
        own = [name for name, value in self.launch.process_env if value == Slot("device")]
        listed = next((self.environ[name].split(",") for name in own if self.environ.get(name)), None)
        if listed is None:
            return str(local)
        return listed[local].strip() if local < len(listed) else ""
