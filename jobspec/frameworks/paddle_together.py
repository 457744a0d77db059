"""What a pod of paddle-operator runs in mode `ps`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobctl.jobspec.frameworks.base import RankSet
    from jobctl.jobspec.plan.types import Value
    from jobctl.jobspec.spec.model import Spec
    from jobctl.jobspec.spec.parts.parts import Ps

# paddle-operator starts servers and trainers at the same time, and a trainer that finds a server's port closed fails. It takes
# a job for completed when the servers, too, have ended well, and Paddle's never end: so trainers tell them, at one of the
# twenty ports that each pod has. `import` knows it by how it begins.
_TOGETHER = """\
# jobctl: trainers wait for servers, which end when all of them are done
import os, signal, socket, subprocess, sys, threading, time
BELL = 17
over = threading.Event()
servers = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
trains = os.environ["TRAINING_ROLE"] == "TRAINER"
def call(place, more, patience):
    host, _, port = place.rpartition(":")
    end = time.time() + patience
    while True:
        try:
            return socket.create_connection((host, int(port) + more), 5)
        except OSError as error:
            if time.time() > end:
                raise OSError("server %s does not answer: %s" % (place, error))
            time.sleep(0.5)
def attend(bell, child):
    missing = {b"%d" % number for number in range(int(os.environ["PADDLE_TRAINERS_NUM"]))}
    while missing:
        with bell.accept()[0] as caller:
            caller.settimeout(5)
            try:
                missing.discard(caller.recv(16))
            except OSError:
                pass
    over.set()
    child.terminate()
    time.sleep(30)
    child.kill()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if trains and sys.argv[1]:
    try:
        for place in servers:
            call(place, 0, float(sys.argv[1])).close()
    except OSError as error:
        sys.exit(str(error))
child = subprocess.Popen(sys.argv[2:])
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
if not trains:
    own = [place for place in servers if place.rpartition(":")[0] == os.environ.get("POD_IP")]
    port = (own or [":" + os.environ["PADDLE_PORT"]])[0].rpartition(":")[2]  # some versions tell these apart
    bell = socket.create_server(("", int(port) + BELL))
    threading.Thread(target=attend, args=(bell, child), daemon=True).start()
code = child.wait()
for place in servers if trains and code == 0 else ():
    try:
        with call(place, BELL, 10) as server:
            server.sendall(os.environ["PADDLE_TRAINER_ID"].encode())
    except OSError as error:
        print(error, "(has it ended by itself?)", file=sys.stderr)
sys.exit(0 if over.is_set() else 128 - code if code < 0 else code)
"""


def together(spec: Spec, ps: Ps, node: RankSet) -> tuple[Value, ...]:
    """Return what starts a server or trainer below paddle-operator, and makes all begin and end together."""
    # With `gloo: 2` servers wait for trainers, and trainers of the versions that know it for servers.
    patience = "" if ps.gloo == 2 else f"{spec.rendezvous.timeout:g}"
    return (node.python, "-c", _TOGETHER, patience)
