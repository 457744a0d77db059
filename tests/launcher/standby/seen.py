"""Print all that a rank can see of itself, as JSON: the same after a cold start and from standby."""

import atexit
import ctypes
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import pickle
import random
import resource
import signal
import sys
import threading
import traceback
import warnings


class Thing:
    """What is pickled, and sent to children."""

    def __init__(self, value):
        self.value = value


def doubled(thing):
    """Run in a child."""
    return Thing(thing.value * 2)


def third_party():
    """Return the modules that are installed beside Python."""
    return sorted(n for n, m in list(sys.modules.items()) if "site-packages" in (getattr(m, "__file__", None) or ""))


def stream(file):
    """Return how a standard stream is set up."""
    kind = os.readlink(f"/proc/self/fd/{file.fileno()}").partition(":")[0]
    buffered = type(file.buffer).__name__
    return [file.name, file.mode, file.encoding, file.errors, file.line_buffering, file.write_through, buffered, kind]


def status(*names):
    """Return lines of /proc/self/status."""
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {name: lines[name].strip() for name in names}


def text(path):
    """Return what a file of /proc says."""
    with open(path) as file:
        return file.read()


def of_c(name):
    """Return what C reads."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value = getenv(name.encode())
    return None if value is None else os.fsdecode(value)


def death_signal():
    """Return the signal that this process gets when its parent dies."""
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(number))
    return number.value


def children():
    """Return what children of each kind return: they find `__main__` again."""
    found = {}
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            found[method] = pool.map(doubled, [Thing(3)])[0].value
    return found


def main():
    """Print it."""
    before = third_party()
    finders = [getattr(finder, "__name__", type(finder).__name__) for finder in sys.meta_path]
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    import framework
    import later  # noqa: F401

    main_module = sys.modules["__main__"]
    variables = dict(os.environ)
    numbers = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
    seen = {
        "argv": sys.argv,
        "orig_argv": getattr(sys, "orig_argv", None),
        "flags": repr(sys.flags),
        "executable": [sys.executable, sys.prefix, sys.exec_prefix],
        "path": sys.path,
        "path hooks": len(sys.path_hooks),
        "finders before": finders,
        "finders after": len(sys.meta_path),
        "third-party modules before": before,
        "third-party modules after": third_party(),
        "spec of framework": [framework.__spec__.origin, type(framework.__loader__).__name__, framework.__file__],
        "sitecustomize": "sitecustomize" in sys.modules,
        "main": {
            name: repr(getattr(main_module, name, "-")) for name in ("__name__", "__file__", "__package__", "__doc__")
        },
        "main's names": sorted(vars(main_module)),
        "main's loader": [type(main_module.__loader__).__name__, repr(main_module.__spec__)],
        "variables": variables,
        "their order": list(variables),
        "the same as bytes": os.environb == {os.fsencode(n): os.fsencode(v) for n, v in variables.items()},
        "variables of C": {name: of_c(name) for name in [*variables, "JOBCTL_STANDBY", "JOBCTL_PROCESS"]},
        "folder": os.getcwd(),
        "umask": [os.umask(0o77), os.umask(0o22)][0],
        "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
        "signals": {int(number): str(signal.getsignal(number)) for number in numbers},
        "signals of the kernel": status("SigBlk", "SigIgn", "SigCgt", "Seccomp", "NoNewPrivs"),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "streams": [stream(file) for file in (sys.stdin, sys.stdout, sys.stderr)],
        "streams at the start": [
            sys.stdin is sys.__stdin__,
            sys.stdout is sys.__stdout__,
            sys.stderr is sys.__stderr__,
        ],
        "descriptors": descriptors,
        "session": [os.getsid(0) == os.getppid(), os.getpgrp() == os.getppid()],
        "death signal": death_signal(),
        "priority": [
            os.nice(0),
            os.sched_getscheduler(0),
            sorted(os.sched_getaffinity(0)),
            text("/proc/self/oom_score_adj"),
            text("/proc/self/autogroup").split()[-1] if os.path.exists("/proc/self/autogroup") else None,
        ],
        "command line": text("/proc/self/cmdline"),
        "name": text("/proc/self/comm"),
        "threads": [thread.name for thread in threading.enumerate()],
        "stack": traceback.format_stack(),
        "hash": hash("standby") if "PYTHONHASHSEED" in os.environ else None,
        "seeded": random.Random(7).random(),
        "recursion": sys.getrecursionlimit(),
        "garbage": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()],
        "warnings": [sys.warnoptions, [repr(one) for one in warnings.filters]],
        "logging": [repr(logging.root.handlers), logging.root.level, logging.lastResort is None],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__],
        "tracing": [sys.gettrace() is None, sys.getprofile() is None],
        "faulthandler": faulthandler.is_enabled(),
        "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding()],
        "pickled": pickle.loads(pickle.dumps(Thing(5))).value,
        "children": children(),
        "start method": multiprocessing.get_start_method(),
    }
    json.dump(seen, sys.stdout)
    print(flush=True)


if __name__ == "__main__":
    main()
    atexit.register(print, "at exit", flush=True)
    with open(os.environ["JOBCTL_PROGRESS_FILE"], "w") as file:
        file.write("1")
    if os.environ["JOBCTL_GENERATION"] == "2":
        raise LookupError("the last words")
    signal.pause()
