"""All codes, once: severity and meaning. docs/diagnostics.md is generated from here.

CODES are those of diagnostics, with a place in a file; LATER those of planning and rendering, which need more than
`validate` looks at (this machine's devices, the folder to write to).
"""

from __future__ import annotations

from collections.abc import Iterator

from jobctl.jobspec.spec.frameworks import FRAMEWORKS, KINDS, Traits


def _limits(name: str, traits: Traits) -> Iterator[tuple[str, str]]:
    """Yield the codes of what a framework cannot do; their rules: `checks`."""
    if traits.kinds != KINDS:
        yield f"{name}-device", f"{name} on a device that it does not run on"
    if traits.no_ps:
        yield f"{name}-ps", f"{name} in mode `ps`"
    if not traits.elastic:
        yield f"{name}-range", f"{name} with a range of nodes"


CODES: dict[str, tuple[str, str]] = {
    # Reading and parsing.
    "no-such-file": ("error", "the file does not exist"),
    "not-a-file": ("error", "the path is a directory"),
    "unreadable": ("error", "the file cannot be read"),
    "too-large": ("error", "the file is larger than any spec: 1 MiB"),
    "not-text": ("error", "a file, or a value from the environment, that is not UTF-8 text"),
    "empty-spec": ("error", "the file holds nothing"),
    "yaml-syntax": ("error", "the file is not YAML"),
    "several-documents": ("error", "more than one YAML document in a file"),
    "unknown-anchor": ("error", "an alias without its anchor"),
    "recursive-alias": ("error", "an alias inside of what it stands for"),
    "too-many-nodes": ("error", "more than 20,000 values once aliases are expanded"),
    "too-deep": ("error", "nested more than 64 levels deep"),
    "complex-key": ("error", "a key that is a list or a mapping"),
    "unknown-tag": ("error", "a YAML tag that is not supported"),
    "bad-merge": ("error", "`<<` with something that is no mapping"),
    "repeated-key": ("error", "a key twice in one mapping, or twice on a line of the hosts file"),
    "bad-override": ("error", "`--set` without KEY=VALUE"),
    # Interpolation.
    "bad-interpolation": ("error", "`$` without a variable; `$$` is a dollar"),
    "required-variable": ("error", "`${VAR:?message}` and VAR is not set"),
    "unset-variable": ("warning", "a variable that is not set and has no default"),
    "bad-env-line": ("warning", "a line of `.env` or an `env_file` that is no `NAME=value`"),
    # Shapes and values.
    "unknown-key": ("error", "a key that the language does not have"),
    "more-mistakes": ("error", "more than 100 values are wrong, and no more of them are shown"),
    "missing-key": ("error", "a required key is missing"),
    "wrong-type": ("error", "a value of another kind than the key takes"),
    "bad-value": ("error", "a value that the key does not allow"),
    "out-of-range": ("error", "a number that is too small or too large"),
    "nul-character": ("error", "a NUL character, which no process can receive"),
    "bad-version": ("error", "a version of the language that this jobctl does not know"),
    "bad-name": ("error", "a job name that is not `[a-z]([-a-z0-9]{0,38}[a-z0-9])?`"),
    "bad-variable": ("error", "a name that no environment variable can have"),
    "bad-output": ("error", "an output that is not below the working directory"),
    "bad-endpoint": ("error", "an etcd endpoint that is not `host:port`"),
    "secret-in-spec": ("error", "a URL or password where the name of a secret has to be"),
    "notify-way": ("error", "an item of `notify` with none or several of `webhook`, `command` and `email`"),
    "notify-format": ("error", "`format` in an item of `notify` without `webhook`"),
    "notify-from-hosts": (
        "error",
        "`from_hosts` in an item of `notify` without `webhook`; on `kubernetes`, or with `etcd`, where launchers do not tell",
    ),
    "notify-login": ("error", "a mail server with a user and no password, or the other way round"),
    "bad-regex": ("error", "a rule's pattern that is not a regular expression"),
    # Rules across fields.
    "nothing-to-run": ("error", "neither `script` nor `module` nor `command`"),
    "two-commands": ("error", "more than one of `script`, `module` and `command`"),
    "args-with-command": ("error", "`args` beside `command`"),
    "per-node-with-ps": ("error", "`per: node` with more servers or trainers than nodes"),
    "per-without-command": ("error", "`per: node` without `command`"),
    "ps-missing": ("error", "mode `ps` without the block `ps`"),
    "ps-without-mode": ("error", "the block `ps` without mode `ps`"),
    "collective-only-device": ("error", "kinds `dcu` and `npu` in mode `ps`"),
    **{code: ("error", meaning) for name, traits in FRAMEWORKS.items() for code, meaning in _limits(name, traits)},
    "ps-heter": ("error", "heterogeneous workers"),
    "ps-range": ("error", "mode `ps` with a range of nodes"),
    "paddle-range-needs-etcd": ("error", "paddle with a range of nodes and without `etcd`"),
    "paddle-etcd-tls": ("error", "paddle with `etcd.tls`"),
    "paddle-etcd-password": ("error", "paddle with a user or password for etcd"),
    "paddle-etcd-address": ("error", "paddle with an etcd at an IPv6 address"),
    "gloo-outside-paddle": ("error", "`ps.gloo` with another framework than paddle"),
    "rejoin-without-ps": ("error", "`torch.rejoin` in another mode than `ps`"),
    "torchrun-option": ("error", "an option of torchrun with which no job starts, or a word that is no option"),
    "too-many-trainers": ("error (on cpu a warning)", "more trainers on a host than its devices"),
    "native-recovery-device": ("error", "mindspore's `recovery: native` on another device than gpu"),
    "native-recovery-msrun": ("error", "mindspore's `recovery: native` with `launcher: msrun`"),
    "native-recovery-unshared": (
        "warning",
        "mindspore's `recovery: native` on several machines, without a shared checkpoint directory",
    ),
    "native-recovery-node": ("error", "mindspore's `recovery: native` with `per: node`"),
    "other-framework": ("error", "the block of another framework"),
    "min-above-max": ("error", "a range of nodes upside down"),
    "count-and-ids": ("error", "`devices.count` beside `devices.ids`"),
    "cpu-ids": ("error", "`devices.ids` of kind `cpu`"),
    "operator-framework": ("error", "an operator of Kubernetes that does not run the framework"),
    "operator-mode": ("error", "an operator of Kubernetes that does not run the mode"),
    "operator-policy": ("error", "a policy that the operator does not know; it would be silently ignored"),
    "operator-unused": ("error", "a key of `kubernetes` that its operator does not have"),
    "operator-service": ("warning", "`intranet: Service`, with which jobs of paddle-operator hang"),
    "shrink-fixed": ("error", "`on_host_loss: shrink` with a fixed number of nodes"),
    "replace-unshared": ("error", "`on_host_loss: replace` with `checkpoint.shared: false`"),
    "relative-checkpoint": ("error", "a checkpoint path that is not absolute"),
    "relative-target": ("error", "a path in the container that is not absolute"),
    "hidden-mount": ("error", "a mount that hides another one"),
    "etcd-user": ("error", "one of `etcd.user` and `etcd.password` without the other"),
    "etcd-either": ("error", "`etcd` with both or neither of `endpoints` and `managed`"),
    "etcd-replicas": ("error", "a managed etcd of other than 1 or 3 members"),
    "empty-rule": ("error", "a rule that matches everything"),
    "event-of-failure": ("error", "a rule about an event with what only a failure has"),
    "unknown-secret": ("error", "a password that names no secret"),
    "two-sources": ("error", "a secret with both `env` and `file`"),
    "secret-in-env": ("error", "one variable in `env` and in `secrets`"),
    "reserved-variable": ("warning", "a variable of `env`, or on `local` of the shell, that the launcher sets"),
    "elastic-unshared": ("warning", "an elastic job whose hosts do not share the checkpoint"),
    "no-checkpoint": ("warning", "a job of several nodes that can restart, without `checkpoint`"),
    "one-checkpoint": ("warning", "`checkpoint.keep` of 1 with mindspore"),
    "paddle-one-endpoint": ("warning", "several etcd endpoints with paddle, which uses the first"),
    "long-elastic-timeout": ("warning", "an elastic timeout above two minutes"),
    "unused-elastic-timeout": ("warning", "an elastic timeout where paddle's launchers do not regroup"),
    "fixed-elastic-timeout": ("warning", "an elastic timeout for a fixed number of nodes"),
    "file-not-found": ("warning", "a script, directory, env file or secret file that is not there"),
    "code-is-root": ("error", "code that is the root of the file system"),
    # Targets and hosts.
    "image-missing": ("error", "a target with containers, and neither `image` nor `build`"),
    "bad-image": ("error", "an `image` with an invalid name"),
    "build-context": ("error", "`build` of something else than a folder of this machine"),
    "build-digest": ("error", "`build` beside an `image` that is named by its digest"),
    "build-host": ("error", "`build.on` names no host of the job"),
    "build-pull": ("error", "`build` beside `pull: always`"),
    "build-secret": ("warning", "an argument of `build` that may be a secret, and stays in the image"),
    "build-unused": ("warning", "on `kubernetes`: `build`, which has no effect there"),
    "container-option": ("error", "an option of `docker run` that jobctl sets itself, or a word that is no option"),
    "option-not-in-compose": (
        "error",
        "on `compose`: an item of `container.options` that a compose file cannot say; target `ssh` can",
    ),
    "no-host-for-role": ("error", "no host of the job takes nodes of a role that it has"),
    "no-hosts": ("error", "a target that needs hosts without a hosts file, or a hosts file without hosts"),
    "hosts-file-gone": ("warning", "the hosts file that a job was started with is gone"),
    "data-on-host": ("error", "`data` on a host whose folder is not an absolute path"),
    "data-hosts": ("error", "`data` for hosts that are not in the hosts file, or for none that the job may use"),
    "data-not-sent": ("error", "`data` on a target without hosts"),
    "relative-volume": (
        "error",
        "a bind source, or a certificate for etcd, relative to the spec, on a target with hosts",
    ),
    "outputs-not-kept": (
        "warning",
        "outputs of a job whose containers have no code folder, or that are gone with their pods; or a pattern",
    ),
    "large-code": ("warning", "code of more than 200 MB, which every host gets"),
    "script-not-sent": ("warning", "a script beside the spec that nothing sends to the hosts"),
    "not-mounted": ("warning", "a volume, data or code target that `local` does not mount"),
    "fitness-not-measured": ("warning", "on `local`, `kubernetes` and `slurm`: `fitness`, which has no effect there"),
    "gloo-without-checkpoint": (
        "warning",
        "`ps.gloo` on several machines, without a shared checkpoint directory, in which trainers meet",
    ),
    "more-processes-than-cores": ("warning", "more processes on this machine than it has cores"),
    "operator-range": ("error", "on `kubernetes`: a range of nodes that nothing there can manage"),
    "operator-per-node": ("error", "on `kubernetes`: `per: node` under an operator"),
    "operator-launcher": ("error", "on `kubernetes`: trainers of old Paddle under an operator"),
    "operator-port": ("warning", "on `kubernetes`: a rendezvous port, which the operator chooses"),
    "operator-recovery": ("warning", "on `kubernetes`: a key of `recovery` that nothing there uses"),
    "two-users": (
        "error",
        "on `kubernetes`: `container.user` and a security context that both say who the processes are",
    ),
    "no-requests": ("warning", "on `kubernetes`: pods on the CPU that ask for neither cores nor memory"),
    "node-path": ("warning", "on `kubernetes`: checkpoints in a folder of each node, which has to be there"),
    "kubernetes-devices": ("error", "on `kubernetes`: devices without a count, so that no pod could ask for them"),
    "kubernetes-ids": ("warning", "on `kubernetes`: device numbers, which the cluster chooses"),
    "kubernetes-etcd": (
        "error (where it is not used, a warning)",
        "on `kubernetes`: an etcd that is not started, or not used, there",
    ),
    "kubernetes-user": ("error", "on `kubernetes`: a user that is not a number"),
    "kubernetes-claim": ("error", "on `kubernetes`: a volume of a name that no claim has"),
    "not-in-kubernetes": ("error", "on `kubernetes`: options of Docker and device files"),
    "kubernetes-ulimits": ("warning", "on `kubernetes`: limits, which the cluster's engine sets"),
    "slurm-container": (
        "error (what has no effect: a warning)",
        "on `slurm`: a container that its engine cannot start",
    ),
    "slurm-devices": ("error (numbers of devices: a warning)", "on `slurm`: devices without a count"),
    "slurm-directory": ("error", "on `slurm`: a login node, and no directory that its nodes see"),
    "slurm-grace": ("warning", "on `slurm`: a `stop_grace_period` longer than Slurm's own"),
    "slurm-etcd": ("warning", "on `slurm`: an etcd, which is not used there"),
    "slurm-nodes": ("error", "on `slurm`: more than 1500 nodes"),
    "slurm-recovery": ("warning", "on `slurm`: a key of `recovery` that has no effect there"),
    "slurm-option": (
        "error (one that a key of `slurm` also sets: a warning)",
        "on `slurm`: an option of `sbatch` that jobctl sets itself",
    ),
    "notify-target": ("warning", "on `kubernetes`: `notify`, as no supervisor of jobctl is there to tell"),
    "too-few-hosts": ("error", "more nodes than the hosts have room for"),
    "ids-beyond-slots": ("error", "a device number beyond a host's slots, or not among its `devices=`"),
    "shared-devices": ("error", "`devices.ids` where one host takes several nodes"),
    "too-few-devices": ("error", "more devices a node than a host has for it, or fewer devices than nodes on one host"),
    "port-collision": ("error", "one port for two things on the same hosts"),
    "too-many-servers": (
        "error",
        "several servers on one host, and old programs (`launcher: legacy`), which know one port for all of them",
    ),
    "unequal-nodes": ("error", "nodes of different size under msrun, which counts on as many workers on each"),
    "bad-host": ("error", "a line of the hosts file that names no host"),
    "bad-address": ("error", "another number of addresses than of hosts"),
    "repeated-address": ("error", "two hosts at one address"),
    "repeated-host": ("error", "a host twice in the hosts file"),
}

LATER: dict[str, str] = {
    # Planning.
    "nodes-out-of-range": "`scale` to a number of nodes that the spec does not allow",
    "devices-unknown": "nothing says how many devices a host has",
    "no-shared-folder": "`ps.gloo`, or MindSpore's `recovery: native`, on several machines without a shared checkpoint directory, in which their processes meet",
    "no-room": "a node is on a host that has no room for it any more",
    # Rendering.
    "too-large-for-kubernetes": "packed code, or a job, that is more than a ConfigMap holds",
    "not-in-sbatch": "a value that no line of a batch script can hold",
    "not-utf-8": "a value that is no UTF-8, which YAML cannot hold, or such a path of the spec's folder",
    "not-text": "a value with half of a character, which no file or process can hold",
    "too-long": "an argument or variable above the kernel's limit of 128 KiB",
    "unmountable-path": "a path that Docker cannot mount",
    "out-not-empty": "the folder of `--out` holds files that `render` did not write",
    "file-in-the-way": "a file stands where `render` needs a folder, or the other way round",
    "cannot-write": "the folder of `--out` cannot be written",
}
