"""What compose files and `docker run` have in common: how a node's container is made around the launcher.

Paths inside a container are fixed; those of the host are relative to the job's work directory there.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256

from jobctl.jobspec.plan.artefact_id import INPUTS_LABEL, ArtefactId
from jobctl.jobspec.plan.sent import Code, Dataset, Sent
from jobctl.jobspec.plan.types import Container, Launch, Mount, Node, Pairs, Service, Ulimit
from jobctl.jobspec.render.devices import access
from jobctl.jobspec.render.mounts import one_at_a_place
from jobctl.jobspec.render.payload import launch_json
from jobctl.jobspec.render.quote import Rendered, mount_option
from jobctl.jobspec.spec.hosts import is_address

# Labels that the artefact's hash does not cover: the version of jobctl alone is no reason to replace a container.
SPEC_LABEL, VERSION_LABEL = "jobctl.spec", "jobctl.version"
_UNCOVERED = (VERSION_LABEL, INPUTS_LABEL)

SPARE = "spare"  # what the launcher on a spare host is called as long as it is no node
DATA = ".data"  # beside the work directories of a host's jobs; no job has such a name

# Docker keeps a container's output for ever unless told otherwise; the logs of processes are files of their own.
LOG_OPTIONS = (("max-file", "3"), ("max-size", "10m"))

_RESTART = re.compile(r"""^( +(?:restart: "|--restart ))unless-stopped""", re.MULTILINE)
# The user who logs in, as scripts say it, and as those of earlier versions did.
_SELF = ("${JOBCTL_USER:-$(id -u):$(id -g)}", "$(id -u):$(id -g)")
LAUNCHER = "/jobctl/launcher.py"
_USERS = {"root": "0:0"}  # by number, because an image need not know the name


def variables(container: Container) -> list[str]:
    """Return the container's variables, NAME=VALUE; the user's win over those of its devices."""
    found = access(container.devices, container.runtime)
    return [f"{name}={value}" for name, value in {**dict(found.env), **dict(container.env)}.items()]


def launch_variable(launch: Launch) -> str:
    """Return the variable that tells the launcher what to do, NAME=VALUE."""
    return f"JOBCTL_LAUNCH={launch_json(launch)}"


def command(container: Container, secrets: bool, spare: bool = False) -> tuple[str, ...]:
    """Return the argv of a container: the launcher with its files; on a `spare` it finds the node's folder once it has one."""
    files = ("--control", "/jobctl/run/control.json", "--dir", f"/jobctl/work/{SPARE}" if spare else "/jobctl/node")
    secret = ("--secrets", "/jobctl/secrets/secrets.json") if secrets else ()
    return (container.python, LAUNCHER, *files, *secret)


def node_mounts(node: Node) -> tuple[Mount, ...]:
    """Return the mounts of a node's own directory; their sources are relative to the work directory.

    The launcher on a spare may become any node, so it has the directories of all. It has no more: what starts containers is
    in the folder above.
    """
    if node.index >= 0:
        return (Mount("bind", node_directory(node.index), "/jobctl/node"),)
    names = [node_directory(index) for index in range(-1, node.launch.spare)]
    return tuple(Mount("bind", name, f"/jobctl/work/{name}") for name in names)


def node_directory(index: int) -> str:
    """Return what a node is called among the artefacts, and the name of its directory on the host."""
    return SPARE if index < 0 else f"node-{index}"


def service_mount(service: Service) -> Mount:
    """Return the mount of a service's own directory; its source is relative to the work directory."""
    return Mount("bind", service.name, service.data)


def job_mounts(sent: Sent, secrets: bool) -> tuple[Mount, ...]:
    """Return the mounts that the job's nodes on a host share; their sources are relative to the work directory."""
    return (
        Mount("bind", "launcher.py", LAUNCHER, read_only=True),
        Mount("bind", "run", "/jobctl/run", read_only=True),
        *((Mount("bind", "secrets", "/jobctl/secrets", read_only=True),) if secrets else ()),
        *((Mount("bind", code_directory(sent.code), sent.code.target),) if sent.code else ()),
        *_output_mounts(sent.code),
        *(Mount("bind", data_directory(one), one.target, read_only=True) for one in sent.data),
    )


def _output_mounts(code: Code | None) -> tuple[Mount, ...]:
    return tuple(Mount("bind", f"outputs/{p}", f"{code.target}/{p}") for p in code.outputs) if code else ()


def code_directory(code: Code) -> str:
    """Return where a version of the code is below the work directory: what runs keeps the one it started with."""
    return f"code/{code.version}" if code.version else "code"


def data_directory(data: Dataset) -> str:
    """Return where a version of data is, relative to the work directory: beside those of jobs, which share it."""
    return f"../{DATA}/{data.name}/{data.version or 'data'}"


def host_mounts(container: Container) -> tuple[Mount, ...]:
    """Return the mounts of what lies elsewhere on the host: the user's, the checkpoints', the driver's."""
    return one_at_a_place(container.mounts + access(container.devices, container.runtime).mounts)


def mount(given: Mount) -> str:
    """Return a mount as Docker's and Podman's option `--mount` has it. Raises RenderError for a path that it cannot hold."""
    source = (("source", given.source),) if given.source else ()
    read_only = (("readonly", ""),) if given.read_only else ()
    return mount_option((("type", given.kind), *source, ("target", given.target), *read_only))


def devices(container: Container) -> tuple[str, ...]:
    """Return the paths of device nodes, as for `docker run --device`, each once: users name those of their accelerators, too."""
    return tuple(dict.fromkeys(access(container.devices, container.runtime).devices + container.extra_devices))


def wants_rdma(container: Container) -> bool:
    """Say whether a container gets the host's RDMA devices, where there are any: if it has accelerators that use them."""
    named = any(device.startswith("/dev/infiniband") for device in container.extra_devices)
    return container.devices.kind != "cpu" and not named


def limits(container: Container) -> tuple[tuple[str, int | str, int | str], ...]:
    """Return name, soft and hard value of each limit, as shells and Compose files read them.

    Whether an engine may raise an optional one, only its host knows: the process that starts the container there says so.
    """
    return tuple((limit.name, *_limit(limit)) for limit in container.ulimits)


def _limit(limit: Ulimit) -> tuple[int | str, int | str]:
    if not limit.optional:
        return limit.soft, limit.hard
    variable = f"JOBCTL_{limit.name.upper()}"
    return Rendered(f"${{{variable}:-{limit.soft}}}"), Rendered(f"${{{variable}:-{limit.hard}}}")


def groups(container: Container) -> tuple[str, ...]:
    """Return the further groups of the container's user."""
    return access(container.devices, container.runtime).groups


def gpus(container: Container) -> tuple[str, ...] | None:
    """Return the ids of GPUs to ask the NVIDIA toolkit for: empty for all, None for no request."""
    return access(container.devices, container.runtime).gpus


def alike(container: Container) -> Container:
    """Return `container` without what tells it from those of the job's other nodes.

    It is rendered once for all of them.
    """
    return replace(container, name="", hostname="", labels=())


def own_name(node: Node | Service) -> tuple[str, ...]:
    """Return the entry of /etc/hosts for the node's host name, as NAME:ADDRESS.

    It is missing where the hosts file gives a name instead of an address: only the host could resolve it.
    """
    return (f"{node.container.hostname}:{node.host.address}",) if is_address(node.host.address) else ()


def pull(container: Container) -> str:
    """Return when the engine itself may pull: `up` has done so for `always`, and what it found is what restarts use."""
    return "never" if container.pull == "never" else "missing"


def user(container: Container) -> str | None:
    """Return the container's user as UID:GID or as written; `self` is for the renderer to say in its language."""
    given = container.user
    return None if given is None else _USERS.get(given, given)


def labels(node: Node | Service) -> Pairs:
    """Return the labels that the artefact's hash covers."""
    return tuple(label for label in node.container.labels if label[0] not in _UNCOVERED)


def uncovered_labels(sent: Sent, node: Node | Service, artefact: str) -> Pairs:
    """Return the labels that the hash of `artefact`, the rest of what starts the node, does not cover."""
    more = tuple(version_and_inputs(sent, node).items())
    artefact = artefact.replace(*_SELF)
    if isinstance(node, Node):  # containers of earlier versions have this policy, and are not replaced for that
        artefact = _RESTART.sub(r"\1on-failure" if node.launch.etcd else r"\1no", artefact)
    return (*more, (SPEC_LABEL, sha256(artefact.encode(errors="surrogatepass")).hexdigest()))


def version_and_inputs(sent: Sent, node: Node | Service) -> dict[str, str]:
    """Return the labels with the version of jobctl and the inputs of a container: the planner's, and code and data."""
    found = {name: value for name, value in node.container.labels if name in _UNCOVERED}
    return {name: _inputs(sent, value) if name == INPUTS_LABEL else value for name, value in found.items()}


def _inputs(sent: Sent, planned: str) -> str:
    """Return the hash of what a container is made from: `planned` is what the planner knows of, code and data are beside it."""
    versions = [sent.code.version if sent.code else None, *((one.name, one.version) for one in sent.data)]
    return sha256(repr((planned, versions)).encode()).hexdigest()


def id_of(uncovered: Pairs) -> ArtefactId:
    """Return what identifies an artefact, from the labels that `uncovered_labels` gave."""
    found = dict(uncovered)
    return ArtefactId(found[SPEC_LABEL], found.get(INPUTS_LABEL), found.get(VERSION_LABEL))
