"""Rarer things that can happen to the job of a campaign: several at once, half of a link, commands of a second machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.fleet.campaign.mishaps import Mishap, Mishaps, supervising
from tests.fleet.host import Host
from tests.fleet.machine import sh
from tests.tools import commands
from tests.tools.waiting import eventually


class RareMishaps(Mishaps):
    """The same job, and what happens to it less often."""

    def rare(self) -> list[Mishap]:
        """Return these kinds of faults, for a job with a controller."""
        return [
            *self.rare_alone(),
            self.supervisor_paused,
            self.removed_as_a_generation_begins,
            self.restarted_from_elsewhere,
            self.stopped_and_up_from_elsewhere,
            self.up_from_elsewhere,
            *([self.scaled_in_the_middle] if self.elastic else []),
        ]

    def rare_alone(self) -> list[Mishap]:
        """Return those that nobody has to watch."""
        return [
            self.both_at_once,
            self.hand_over_goes_wrong,
            self.deaf_to_another,
            self.sshd_down,
            self.engine_restarts_beside_a_start,
        ]

    def at_once(self, *what: Callable[[], None]) -> None:
        """Do several things at the same time."""
        with ThreadPoolExecutor(len(what)) as pool:
            for done in [pool.submit(one) for one in what]:
                done.result()

    def both_at_once(self, host: Host, node: int) -> None:
        """Let the same moment do something to two hosts."""
        other = self.another(host, node)
        first, second = self.chance.choice(self.instant()), self.chance.choice(self.instant())
        self.at_once(lambda: first(host, node), lambda: second(*other))

    def wait_for_a_generation(self, since: int, seconds: float = 60.0) -> None:
        """Return as soon as a generation after `since` lies on a host, or after `seconds`: there may be none."""
        deadline = time.monotonic() + seconds
        while self.generation() == since and time.monotonic() < deadline:
            time.sleep(0.01)

    def hand_over_goes_wrong(self, host: Host, node: int) -> None:
        """Take a host away, and as its node moves (if it can), let something happen where it goes."""
        number, before = self.generation(), {h.name for h, _ in self.homes()}
        host.pull_cable()
        self.wait_for_a_generation(number, 4.0 * self.timeout)
        new = [(h, n) for h, n in self.homes() if h.name not in before]
        self.chance.choice(self.instant())(*(new[0] if new else self.another(host, node)))
        host.plug_cable()

    def deaf_to_another(self, host: Host, node: int) -> None:
        """Let one host hear nothing of another one's, which still hears it."""
        other, _ = self.another(host, node)
        rule = ("INPUT", "-s", f"{other.address}/32", "-j", "DROP")
        inside = ("nsenter", f"--net=/run/netns/{host.namespace}", "iptables", "-w")
        sh(*inside, "-A", *rule)
        try:
            time.sleep(self.chance.uniform(1.0, 4.0 * self.timeout))
        finally:
            sh(*inside, "-D", *rule, check=False)

    def sshd_down(self, host: Host, node: int) -> None:
        """Let nobody log in to a host whose launcher lives; and let something fail meanwhile."""
        host.kill_sshd()
        time.sleep(self.chance.uniform(0.0, 2.0 * self.timeout))
        self.chance.choice(self.instant())(*self.chance.choice(self.homes()))
        time.sleep(self.chance.uniform(0.0, 2.0 * self.timeout))
        host.start_sshd()

    def engine_restarts_beside_a_start(self, host: Host, node: int) -> None:
        """End a host's engine as the next generation is on its way there."""
        number = self.generation()
        self.process_killed(*self.another(host, node))
        self.wait_for_a_generation(number)
        host.stop_engine()
        time.sleep(self.chance.uniform(0.0, 3.0))
        host.start_engine()
        host.wait_for_engine()

    # With a controller.

    @contextlib.contextmanager
    def paused_supervisor(self) -> Iterator[None]:
        """Let the supervisor stand still."""
        eventually(self.is_supervised)
        _, pid = eventually(lambda: supervising(self.directory)) or (None, 0)
        begun = time.time()
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
            self.unwatched.append((begun, time.time()))

    def supervisor_paused(self, host: Host, node: int) -> None:
        """Let the supervisor stand still for longer than a lease, while something fails."""
        with self.paused_supervisor():
            time.sleep(self.chance.uniform(0.0, 2.0))
            self.chance.choice(self.instant())(host, node)
            time.sleep(self.chance.uniform(self.timeout, 4.0 * self.timeout))

    def removed_as_a_generation_begins(self, host: Host, node: int) -> None:
        """Remove a container, and another one, or the same, once more as the next generation begins."""
        number = self.generation()
        self.container_removed(host, node)
        self.wait_for_a_generation(number)
        time.sleep(self.chance.uniform(0.0, 0.5))
        self.container_removed(*self.chance.choice(self.homes()))

    def from_elsewhere(self, *args: str, codes: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        """Run `jobctl` as a second machine does, which has another state directory.

        It is repeated while a supervisor has the lock, which waits for an engine for longer than commands wait for the lock.
        """
        environ = {**self.environ, "JOBCTL_STATE_DIR": str(self.directory / "second")}
        done = eventually(lambda: not _is_locked_out(done := commands.run(args, self.code, environ, 400.0)) and done)
        assert done.returncode in codes, (args, done.returncode, done.stdout, done.stderr)
        return done

    def in_the_middle(self, host: Host, node: int) -> None:
        """Let something fail, and return a moment later."""
        self.chance.choice([*self.instant(), self.engine_killed])(host, node)
        time.sleep(self.chance.uniform(0.0, 3.0))

    def restarted_from_elsewhere(self, host: Host, node: int) -> None:
        """Restart it from a second machine in the middle of a recovery."""
        self.from_elsewhere("up", *self.where, "--skip-check", codes=(0, 4))
        self.in_the_middle(host, node)
        self.from_elsewhere("restart", codes=(0, 4))

    def stopped_and_up_from_elsewhere(self, host: Host, node: int) -> None:
        """Stop it from a second machine in the middle of a recovery, and bring it up again from the first."""
        self.in_the_middle(host, node)
        self.from_elsewhere("stop", "--hosts", "hosts.txt", "--ssh-config", str(self.fleet.ssh_config), codes=(0, 4))
        self.command("up", *self.where, "--skip-check", codes=(0, 4))

    def up_from_elsewhere(self, host: Host, node: int) -> None:
        """Change it from a second machine in the middle of a recovery."""
        self.edit()
        self.in_the_middle(host, node)
        self.from_elsewhere("up", *self.where, "--skip-check", codes=(0, 4))

    def scaled_in_the_middle(self, host: Host, node: int) -> None:
        """Let something happen, or kill the command, while a node that joins gets ready."""
        self.change_what_runs("scale", "counter", "2")
        self.trains_on()
        began = len(self.happened("step"))
        command = self.start("scale", "counter", "3")
        eventually(lambda: any("start node" in one["message"] for one in self.happened("step")[began:]))
        time.sleep(self.chance.uniform(0.0, self.timeout))
        what = self.chance.choice([lambda host, node: command.kill(), *self.instant()])
        what(*self.chance.choice(self.homes()))
        assert command.wait(400) in (0, 1, 2, 4, -signal.SIGKILL), (command.returncode, *command.printed())
        self.command("scale", "counter", "3")


def _is_locked_out(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 5 and "is locked on" in done.stderr and "by `supervisor`" in done.stderr
