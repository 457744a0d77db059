"""What a script sets up before it imports what a rank has imported already: it means the same as after a cold start."""

from __future__ import annotations

import os

import pytest

from jobctl.jobspec.launcher.standby.guard import CannotWait

from .place import Place

CORES = sorted(os.sched_getaffinity(0))
SEVERAL = pytest.mark.skipif(len(CORES) < 2, reason="one core cannot be divided")
COLD = "the script changes {} before it imports framework"

# Prints what a process has of the one that it was before, and changes all of it.
CHANGES = """\
import os, resource, signal
number = resource.RLIMIT_NOFILE
soft, hard = resource.getrlimit(number)
mask, umask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]), os.umask(0o77)
before = signal.signal(signal.SIGUSR1, signal.SIG_IGN), signal.setitimer(signal.ITIMER_REAL, 1000)
print(umask, soft, mask, before, sorted(os.sched_getaffinity(0)), os.nice(0), os.getcwd())
resource.setrlimit(number, (soft - 1, hard))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.chdir("/")
os.environ["OMP_NUM_THREADS"] = "1"
import framework
"""


@pytest.mark.every_python
def test_a_rank_that_goes_on_cold_begins_as_a_new_process_does(place: Place) -> None:
    said, code = place.run(place.park(CHANGES))
    assert (code, place.why()) == (0, COLD.format("OMP_NUM_THREADS") + "; set it in `env`")
    assert said == place.cold() * 2


@SEVERAL
def test_a_script_that_takes_its_share_of_the_cores_takes_it_once(place: Place) -> None:
    """The share of a share would be none: the second rank of a node of two cores could not start."""
    script = """\
import os
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, cores[len(cores) // 2 :])
print(len(cores))
os.environ["OMP_NUM_THREADS"] = "1"
import framework
"""
    assert place.run(place.park(script)) == (f"{len(CORES)}\n" * 2, 0)


@SEVERAL
def test_a_script_that_takes_cores_before_libraries_count_them_starts_again_cold(place: Place) -> None:
    place.install("framework", "import os\ncores = len(os.sched_getaffinity(0))")
    script = f"import os\nos.sched_setaffinity(0, {{{CORES[0]}}})\nimport framework\nprint(framework.cores)"
    assert place.run(place.park(script)) == ("1\n", 0)
    assert place.why() == COLD.format("the cores that it may use")


@SEVERAL
def test_cores_that_an_import_leaves_are_taken_by_the_scripts_import(place: Place) -> None:
    """As OpenMP's library does where OMP_PROC_BIND is set."""
    place.install("framework", f"import os\nos.sched_setaffinity(0, {{{CORES[0]}}})")
    script = "import os\nprint(len(os.sched_getaffinity(0)))\nimport framework\nprint(len(os.sched_getaffinity(0)))"
    assert place.run(place.park(script)) == (f"{len(CORES)}\n1\n", 0)
    assert place.why() is None


LOGS = """\
import logging
names = ["framework", "framework.io", "framework.net"]
for name in names: logging.getLogger(name).setLevel(20)
def warn(): return [logging.getLogger(name).warning("of %s", name) for name in names]
"""
# Standard error is buffered like this in no Python: the lines stand in their order.
CONFIGURE = """\
import logging.config, sys
logging.config.dictConfig({"version": 1, "handlers": {"here": {"class": "logging.StreamHandler", "stream": sys.stdout}},
                           "root": {"handlers": ["here"]}})
import framework
framework.warn()
"""


@pytest.mark.every_python
def test_a_framework_is_heard_although_logging_was_set_up_before_it_was_imported(place: Place) -> None:
    """`logging.config` disables all loggers that are there, and those of the framework would not be there yet."""
    place.install("framework", LOGS)
    said, code = place.run(place.park(CONFIGURE))
    assert (said, code, place.why()) == ("of framework\nof framework.io\nof framework.net\n", 0, None)
    assert said == place.cold()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("logging.getLogger('framework.io').setLevel(40)", "the logger framework.io"),
        ("logging.getLogger('framework.net').disabled = True", "the logger framework.net"),
        ("logging.getLogger('framework').addHandler(logging.NullHandler())", "the logger framework"),
        ("logging.setLoggerClass(type('Mine', (logging.Logger,), {}))", "logging.getLoggerClass()"),
    ],
)
def test_a_script_that_sets_up_a_logger_of_the_framework_first_starts_again_cold(
    place: Place, line: str, what: str
) -> None:
    place.install("framework", LOGS)
    assert place.run(place.park(f"import logging\nprint('begins')\n{line}\nimport framework")) == (
        "begins\nbegins\n",
        0,
    )
    assert place.why() == COLD.format(what)


PARTS = "import framework.core\nimport needed"
FINDER = """\
import importlib.util, sys
seen = []
class Finder:
    def find_spec(self, name, path=None, target=None):
        seen.append((name, path is not None))
        {}
sys.meta_path.insert(0, Finder())
import framework
print(sorted(one for one in seen if one[0] in ("framework", "framework.core", "needed")))
"""


def install_parts(place: Place) -> None:
    """Install a package, with a module in it, that needs another one."""
    (place.packages / "framework.py").unlink()
    (place.packages / "framework").mkdir()
    place.install("framework/__init__", PARTS)
    place.install("framework/core", "")
    place.install("needed", "mine = False")


@pytest.mark.every_python
def test_a_finder_of_the_script_is_asked_for_all_that_an_import_brings(place: Place) -> None:
    install_parts(place)
    said, code = place.run(place.park(FINDER.format("return None")))
    assert (said, code, place.why()) == (place.cold(), 0, None)
    assert said == "[('framework', False), ('framework.core', True), ('needed', False)]\n"


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (FINDER.format("if name == 'needed': return importlib.util.spec_from_loader(name, None)"), "sys.meta_path"),
        (FINDER.format("if name == 'framework.core': raise ImportError(name)"), "sys.meta_path"),
        ("import builtins\nown = builtins.__import__\nbuiltins.__import__ = lambda *of: own(*of)\nimport framework", "builtins.__import__"),
        ("import sys\nsys.modules['needed'] = None\nimport framework", "sys.modules['needed']"),
    ],
)  # fmt: skip
def test_a_script_that_changes_how_the_framework_is_imported_starts_again_cold(
    place: Place, script: str, what: str
) -> None:
    install_parts(place)
    place.run(place.park(script))
    assert place.why() == COLD.format(what)


def test_a_package_that_the_framework_would_import_from_another_place_starts_again_cold(place: Place) -> None:
    install_parts(place)
    rank = place.park("import framework\nprint(framework.needed.mine)")
    (place.root / "needed.py").write_text("mine = True")  # as code that was sent since
    assert place.run(rank) == ("True\n", 0)
    assert place.why() == "the script has needed imported from another place"


@pytest.mark.every_python
def test_a_module_of_ones_own_is_not_hidden_by_one_of_pythons(place: Place) -> None:
    """Python has imported few when a script begins. A rank that waits has imported more."""
    (place.root / "socket.py").write_text("")
    with pytest.raises(CannotWait, match=r"/socket.py has the name of a module of Python's"):
        place.park("import socket")


def test_a_rank_that_uses_the_framework_does_not_begin_again(place: Place) -> None:
    """It may have met the others, who would wait for it. What a later import has not read may change by then."""
    place.install("part", "import os\nlevel = os.environ.get('LEVEL')")
    place.install("other", "import part")
    script = "import os, framework\nprint('begins')\nos.environ[{!r}] = '3'\nimport part\nprint(part.level)"
    imports = ["framework", "other"]
    assert place.run(place.park(script.format("OTHER"), imports)) == ("begins\nNone\n", 0)
    said, code = place.run(place.park(script.format("LEVEL"), imports))
    why = "the script changes LEVEL before it imports part; set it in `env`"
    assert (said, code) == (f"begins\nstandby: {why}; this process ends, and the next one starts cold\n", 1)
    assert place.why() == why
