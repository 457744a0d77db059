"""The guard of the launcher: it reaps orphans, and kills what is left when the launcher is gone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.etcd.session import EtcdSession
from jobctl.jobspec.launcher.etcd.session_lease import LeaseSession
from jobctl.jobspec.launcher.node.agent import POLL, Launcher
from jobctl.jobspec.launcher.node.idle import run_spare
from jobctl.jobspec.launcher.order.launch import Launch
from jobctl.jobspec.launcher.run.scratch import remove_scratch
from jobctl.jobspec.launcher.system.deadline import Deadline
from jobctl.jobspec.launcher.system.files import note
from jobctl.jobspec.launcher.system.processes import (
    EXIT_TAKEN,
    SIGNALS,
    adopt_orphans,
    fork,
    forward_signal,
    handle_signals,
    kill_descendants,
    wait_for,
)

if TYPE_CHECKING:
    import argparse
    from typing import Optional
# Seconds that another launcher of this node gets to end, as one does whose engine was killed
OTHER_LAUNCHER_TIMEOUT = 10.0


def guard(options: argparse.Namespace) -> int:
    """Fork the launcher proper, forward signals to it, and leave nothing behind when it ends."""
    launch = Launch.from_json(json.loads(os.environ.pop("JOBCTL_LAUNCH")))
    own = options.own or options.dir
    lock = wait_for_lock(own)
    if lock is None:
        note("another launcher of this node runs already (it holds %s/launcher.lock)" % own)
        return EXIT_TAKEN
    remove_scratch(options.dir)  # of a launcher that was killed with all that would have done so
    adopt_orphans()
    # Blocked until both sides are ready: a signal between fork and handler would otherwise kill only one of them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    channel, deadline = None, Deadline()
    if launch.has_session:
        channel, other_end = socket.socketpair()
        fork(lambda: EtcdSession(launch, options, other_end).run(), channel)
        other_end.close()
    session = None if channel is None else LeaseSession(channel)
    if launch.spare:
        pid = fork(lambda: run_spare(launch, options, deadline, session))
    else:
        pid = fork(lambda: Launcher(launch, options, deadline, session).run())
    if channel is not None:
        channel.close()
    handle_signals(lambda received, frame: forward_signal(pid, received))
    signal.signal(signal.SIGALRM, lambda received, frame: deadline.enforce())
    signal.setitimer(signal.ITIMER_REAL, POLL, POLL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    code = wait_for(pid)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    kill_descendants()
    remove_scratch(options.dir)
    return code


def wait_for_lock(directory: str) -> Optional[int]:
    """Lock the node's directory; wait for a launcher that is just ending. Return None if another launcher keeps the lock."""
    deadline = time.monotonic() + OTHER_LAUNCHER_TIMEOUT
    while True:
        lock = take_lock(directory)
        if lock is not None or time.monotonic() > deadline:
            return lock
        time.sleep(POLL)


def take_lock(directory: str) -> Optional[int]:
    """Lock the node's directory for as long as this process or its fork lives; None if it is locked already."""
    os.makedirs(directory, exist_ok=True)
    handle = os.open(os.path.join(directory, "launcher.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:  # shared storage may have no locks at all
        found = os.fstat(handle)
        os.close(handle)
        return take_name("jobctl-%d-%d" % (found.st_dev, found.st_ino))
    return handle


def take_name(name: str) -> Optional[int]:
    """Hold a name of which this machine has but one, among the sockets without a file; None if it is held already."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind("\0" + name)
    except OSError:
        holder.close()
        return None
    return holder.detach()
