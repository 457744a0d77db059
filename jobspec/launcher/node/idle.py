"""The launcher of a hot spare: it waits until a node is given to its host, and is that node's launcher from then on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.node.agent import GIVEN, Launcher
from jobctl.jobspec.launcher.peers.lease import NOBODY
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.report.report import last_report
from jobctl.jobspec.launcher.run.scratch import remove_scratch
from jobctl.jobspec.launcher.system.files import note, read_json, write_json
from jobctl.jobspec.launcher.system.processes import handle_signals

if TYPE_CHECKING:
    import argparse
    from typing import Optional

    from jobctl.jobspec.launcher.etcd.session_lease import LeaseSession
    from jobctl.jobspec.launcher.order.launch import Launch
    from jobctl.jobspec.launcher.system.deadline import Deadline
    from jobctl.jobspec.launcher.system.files import Json


class SpareLauncher(Launcher):
    """The launcher of a node on a hot spare: it ends when the newest order has another node there."""

    def follow(self, last: SpareLauncher) -> None:
        """Take the place of the launcher before this one: with its standby, and told to end if that was told so just now."""
        if last.launch.node == NOBODY:
            self.standby = last.standby
        handle_signals(self.on_signal)
        if last.signal is not None:  # from here on that one hears none
            self.signal = last.signal

    def obey(self) -> Optional[int]:
        """Do what the order says, unless another launcher is to."""
        return super().obey() if self.given_node() in (None, self.launch.node) else self.end_for_another()

    def end_for_another(self) -> int:
        """End what runs: two have moved a node to this host at once, and the other one counts."""
        self.standby.drop()
        self.end_processes(0.0, over=True)
        return GIVEN

    def given_node(self) -> Optional[int]:
        """Return the node that the newest order has on this host, None if it has none."""
        order = self.orders.order
        members = order.members if order is not None and order.command != "finish" else []
        return next((member.node for member in members if member.host == self.launch.host), None)


class IdleLauncher(SpareLauncher):
    """Follows the orders of a job without a node of its own, and tells all launchers that it is there."""

    def __init__(
        self, launch: Launch, options: argparse.Namespace, deadline: Deadline, session: Optional[LeaseSession] = None
    ) -> None:
        super().__init__(launch, options, deadline, session)
        self.idle.allow()
        self.say()

    def obey(self) -> Optional[int]:
        """See whether a node is on this host by now."""
        order = self.orders.order
        if order is None:
            return None
        if order.command != "run" and not order.is_paused:  # after a change, what it has imported is of use again
            self.standby.drop()
        if order.command == "finish":
            return 0
        if self.given_node() is not None:
            return GIVEN
        if order.command == "run":
            self.idle.expect(order)
        self.links.greet(order)
        return None


def run_spare(
    launch: Launch, options: argparse.Namespace, deadline: Deadline, session: Optional[LeaseSession] = None
) -> int:
    """Wait for a node, then run it; return the exit code.

    A launcher that was started again after that finds in its report which node it was.
    """
    spare = options.dir
    last: Optional[SpareLauncher] = None
    node = (read_json(os.path.join(spare, "report.json")) or {}).get("node", NOBODY)
    while True:
        options.dir = spare if node == NOBODY else node_directory(spare, node)
        kind = IdleLauncher if node == NOBODY else SpareLauncher
        if session is not None:
            session.be(node)
        launcher = kind(changed(launch, node=node), options, deadline, session)
        if last is not None:
            launcher.follow(last)
        try:
            code = launcher.run()
        finally:
            remove_scratch(options.dir)
        given = launcher.given_node()
        if code != GIVEN or given is None:
            return code
        if not take_over(launcher, spare, given):
            return 1  # its engine starts it again, idle
        node, last = given, launcher


def take_over(launcher: SpareLauncher, spare: str, node: int) -> bool:
    """Leave to the launcher of `node` all that it needs: the order, and the port at which others expect it.

    Return whether all of it is on disk. A launcher that began without it would follow an older order, and hear others at a
    port that they do not know. One that is started again without it would begin once more in an order in which its node ran.
    """
    agreed = launcher.orders.agreed
    known = {
        "order": agreed.to_json() if agreed is not None else None,
        "left": launcher.report.fields.left,
        "port": launcher.links.addresses.port,
    }
    # What the launcher of the node has begun here counts: a power cut may have made this one forget which node it was.
    before = last_report(node_directory(spare, node))
    begun: Json = {key: before[key] for key in ("generation", "epoch") if key in before}
    begun.update({"version": 1, "node": node, "role": launcher.launch.role, "state": "waiting", "spare": True})
    path = os.path.join(spare, "report.json")
    here = {**(read_json(path) or {}), "node": node, "reason": "node %d is here" % node}
    # That of the node comes first: the other one names it.
    written = write_json(os.path.join(node_directory(spare, node), "report.json"), {**begun, **known})
    if not (written and write_json(path, here)):
        note("this host does not take node %d: the node's launcher could not read all that it needs" % node)
        return False
    launcher.links.addresses.close()
    note("node %d is given to this host" % node)
    return True


def node_directory(directory: str, node: int) -> str:
    """Return the directory of a node beside that of the idle launcher."""
    return os.path.join(os.path.dirname(directory), "node-%d" % node)
