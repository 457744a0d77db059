"""Keys that other tools have at the top of their files, and what says the same here: no likeness of letters finds that."""

from __future__ import annotations

from collections.abc import Mapping

_DEVICES = "write `devices: gpu:8`: one process runs on each"
_HOSTS = "hosts are in a file of their own: `--hosts hosts.txt`"
_COMMAND = "write `command`; or `script` or `module`, with `args`"
_MANIFEST = "is this a manifest of Kubernetes? `jobctl import FILE` writes a spec from it"
_HOST_NETWORK = "leave it out: containers have their host's network, and `jobctl forward` brings a port to your machine"
_MEETING = "leave it out: jobctl chooses where processes meet; `rendezvous: {port: 29500}` keeps to one port"
# Words of Docker Compose, torchrun, DeepSpeed, Kubernetes and Slurm.
HINTS: Mapping[str, str] = {
    "target": "the command line chooses it: `--target local`, `compose`, `ssh`, `kubernetes` or `slurm`",
    **dict.fromkeys(("hosts", "hostfile", "machines", "workers"), _HOSTS),
    **dict.fromkeys(("gpu", "gpus", "ngpus", "num_gpus", "gpus_per_node"), _DEVICES),
    **dict.fromkeys(("nprocs", "nproc_per_node", "num_processes"), _DEVICES),
    "replicas": 'write `nodes: 4`, or `nodes: "2:4"` for an elastic job',
    **dict.fromkeys(("environment", "environments"), "write `env`"),
    **dict.fromkeys(("entrypoint", "run"), _COMMAND),
    **dict.fromkeys(
        ("working_dir", "workdir", "cwd"),
        "the script runs in `code`; `code: {source: ., target: /path}` says where that is",
    ),
    **dict.fromkeys(("restart", "restart_policy"), "`recovery: {max_restarts: 3}` says how often"),
    **dict.fromkeys(("ports", "network_mode"), _HOST_NETWORK),
    **dict.fromkeys(("master_addr", "master_port", "rdzv_endpoint", "rdzv_backend"), _MEETING),
    "mem_limit": "write `resources: {memory: 64g}`",
    "cpus": "`cpus` belongs into `resources`",
    "privileged": "write `container: {options: [--privileged]}`",
    "user": "`user` belongs into `container`",
    "ckpt": "write `checkpoint`",
    "time": "`time` belongs into `slurm`",
    **dict.fromkeys(("apiversion", "kind", "metadata", "spec"), _MANIFEST),
}
