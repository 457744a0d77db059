"""The inside of a node for SSH clients: a shell, a configuration for editors, and the server that their connections find."""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.operations.errors import Refused
from jobctl.jobspec.operations.inspect.exec import entered, exec_in_node
from jobctl.jobspec.operations.resolve.names import SERVICES, node_number

if TYPE_CHECKING:
    from jobctl.jobspec.deploy.apply.deployer import Enterable, Handle
    from jobctl.jobspec.operations.reporter import Reporter
    from jobctl.jobspec.operations.resolve.job import Reached


def shell_in_node(handle: Handle, node: str | None, reporter: Reporter) -> int:
    """Run a login shell inside of a node, with the terminal; return its exit code."""
    from jobctl.jobspec.deploy.host.scripts import SCRIPTS

    return exec_in_node(handle, node, SCRIPTS.argv("shell", "-l"), reporter)


def serve_node(handle: Enterable, node: str | None, reporter: Reporter) -> None:
    """Speak SSH on standard input and output, until the client has gone. Raises Refused."""
    from jobctl.jobspec.deploy.model.errors import DeployError, HostError
    from jobctl.jobspec.deploy.ssh_server.keys import keys_of
    from jobctl.jobspec.deploy.ssh_server.server import serve_stdio

    try:
        number = node_number(handle.plan, node or "0")
        session = entered(handle, number, lambda: handle.session(number), reporter)
        serve_stdio(keys_of(handle.job), session)
    except HostError:
        raise
    except DeployError as error:
        raise Refused(error.message, error.hint) from error


def ssh_config(handle: Enterable, reached: Reached) -> str:
    """Return a configuration for SSH clients with a host for each node of a job; its keys are made if there are none.

    Raises Refused if the job has no nodes.
    """
    from jobctl.jobspec.deploy.ssh_server.keys import alias, keys_of

    nodes = _nodes(handle)
    if not nodes:  # and so no keys: nobody would remove them
        raise Refused(f"job `{handle.job.name}` does not run: it has no nodes", "`jobctl up` starts it")
    keys, name = keys_of(handle.job), handle.job.name
    common = [
        "User jobctl",
        f"IdentityFile {_quoted(str(keys.user_file))}",
        "IdentitiesOnly yes",
        f"UserKnownHostsFile {_quoted(str(keys.known_hosts))}",
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "ForwardAgent no",
    ]
    blocks = [
        [
            f"Host {alias(name, node)}",
            f"HostName {alias(name, node)}",
            f"ProxyCommand {_proxy_command(name, node, reached)}",
            *common,
        ]
        for node in nodes
    ]
    return "\n".join("\n  ".join(block) + "\n" for block in blocks)


def _nodes(handle: Enterable) -> list[int]:
    if handle.plan is not None:
        return [node.index for node in handle.plan.nodes if node.role not in SERVICES]
    return [node.node for node in handle.observe().nodes if node.role not in SERVICES]


def _proxy_command(job: str, node: int, reached: Reached) -> str:
    """Return the command with which a client starts the server; a shell reads it, and `%` is the client's own sign."""
    from jobctl.jobspec.deploy.store.jobdir import state_dir

    paths: dict[str, str] = {}  # of this environment: that of an editor may be another
    if os.environ.get("JOBCTL_STATE_DIR") or os.environ.get("XDG_STATE_HOME"):
        paths["JOBCTL_STATE_DIR"] = str(state_dir(os.environ))
    if files := list(filter(None, os.environ.get("KUBECONFIG", "").split(":"))):
        paths["KUBECONFIG"] = ":".join(map(os.path.abspath, files))
    argv = ["env", *(f"{name}={text}" for name, text in paths.items())] if paths else []
    argv += [sys.executable, "-m", "jobctl", "ssh", job, "--node", str(node), "--stdio"]
    argv += ["--hosts", str(reached.hosts.absolute())] if reached.hosts else []
    argv += ["--ssh-config", str(reached.ssh_config.absolute())] if reached.ssh_config else []
    argv += ["--context", reached.context] if reached.context else []
    argv += ["--namespace", reached.namespace] if reached.namespace else []
    return shlex.join(argv).replace("%", "%%")


def _quoted(path: str) -> str:
    """Return a path as the configuration of OpenSSH has it."""
    escaped = path.replace("%", "%%")
    return escaped if re.fullmatch(r"[\w./%+:@=,-]+", escaped) else f'"{escaped}"'
