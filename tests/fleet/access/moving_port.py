"""A port of a node behind a jump host, and a way to make the node move: for the test of `forward`, and its benchmark."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.fleet.fleet import Fleet, fleet
from tests.fleet.jobs import SPEC, Jobs

PORT = 6006  # each host has a network of its own
RULES = "recovery: {{rules: [{{exit: 9, do: exclude_host}}]}}\n"

# Tells everybody who connects at which address its node is, and fails when told to.
SERVER = f"""\
import os, socket, sys
node, kept = os.environ["JOBCTL_NODE"], os.environ["JOBCTL_CHECKPOINT_DIR"]
listener = socket.create_server(("127.0.0.1", {PORT}))
listener.settimeout(0.05)
while True:
    if os.path.exists(os.path.join(kept, "fail-" + node)):
        os.unlink(os.path.join(kept, "fail-" + node))
        sys.exit(9)
    try:
        connection, _ = listener.accept()
    except TimeoutError:
        continue
    connection.sendall(socket.gethostbyname(socket.gethostname()).encode())
    connection.close()
"""


@contextlib.contextmanager
def behind_a_jump_host() -> Iterator[Fleet]:
    """Yield three hosts, of which only the first can be reached from here."""
    with fleet(3) as made:
        for host in made.hosts[1:]:
            host.kill_sshd()
            host.behind = host.hidden
            host.start_sshd()
        made.write_ssh_config()
        yield made


def serving_job(directory: Path, hosts: Fleet) -> Jobs:
    """Return a job for the first two hosts, each of whose nodes serves PORT; the third host is a spare."""
    made = Jobs(directory, hosts, SPEC + RULES)
    (made.code / "counter.py").write_text(SERVER)
    lines = (made.code / "hosts.txt").read_text().splitlines()
    (made.code / "hosts.txt").write_text("\n".join([*lines[:2], f"{lines[2]} spare"]) + "\n")
    return made


def said_at(port: int) -> str:
    """Return what the node behind a port tells, nothing where none answers."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 30) as connection:
        return connection.recv(100).decode()
    return ""
