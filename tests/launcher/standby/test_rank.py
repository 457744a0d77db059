"""One rank that waits, without a launcher: what keeps it from waiting or from going on, and what its script then finds."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from jobctl.jobspec.launcher.standby.guard import CannotWait, ParkedRank, write_hook

from .place import Place


@pytest.mark.every_python
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "an import has started the thread "),
        ("import socket\nkept = socket.socket()", "an import has opened a socket"),
        ("import sys\nsys.path.append('/elsewhere')", "importing framework changes sys.path"),
        ("import nothing_of_the_kind", "importing framework fails: ModuleNotFoundError: No module named 'nothing_of_the_kind'"),
        ("import sys\nsys.exit('not here')", "importing framework fails: SystemExit: not here"),
        ("import os\nos._exit(3)", "a rank that imports has ended"),
        ("import os\nos.write(2, b'out of luck\\n')\nos._exit(3)", "a rank that imports has ended: out of luck"),
    ],
)  # fmt: skip
def test_what_leaves_something_behind_does_not_wait(place: Place, text: str, why: str) -> None:
    place.install("framework", text)
    with pytest.raises(CannotWait) as caught:
        place.park("print('it runs')")
    assert str(caught.value).startswith(why)


def test_the_jobs_own_code_is_not_imported_beforehand(place: Place) -> None:
    (place.root / "framework.py").write_text("")
    with pytest.raises(CannotWait, match=r"an import loads .*/framework.py, which is the job's own code"):
        place.park()


def test_an_interpreter_that_runs_no_sitecustomize_is_not_started_with_the_script(place: Place) -> None:
    wrapper = place.root / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {place.python} -E "$@"\n')
    wrapper.chmod(0o755)
    place.python = str(wrapper)
    with pytest.raises(CannotWait, match="does not run sitecustomize first"):
        place.park("open('it-ran', 'w')")
    assert not (place.root / "it-ran").exists()


def test_a_script_that_ran_in_place_of_the_hook_could_write_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the hook ever be missed although the probe has run it."""
    monkeypatch.setattr(ParkedRank, "probe", lambda self, environ: None)
    place.hook = place.root
    with pytest.raises(CannotWait, match="File too large"):
        place.park("with open('it-ran', 'w') as file:\n    file.write('1')")
    assert (place.root / "it-ran").read_text() == ""


def test_a_hook_that_breaks_does_not_run_the_script(place: Place) -> None:
    place.hook = place.root / "hook"
    (place.root / "broken.py").write_text("def park():\n    raise RuntimeError('broken')\n")
    write_hook(str(place.hook), str(place.root / "broken.py"))
    with pytest.raises(CannotWait, match="a rank that imports has ended: standby: RuntimeError"):
        place.park("open('it-ran', 'w')")
    assert not (place.root / "it-ran").exists()


@pytest.mark.every_python
def test_a_sitecustomize_of_ones_own_is_run(place: Place) -> None:
    place.install("sitecustomize", "import sys\nsys.customized = True")
    said = place.run(place.park("import sys\nprint(sys.customized, sys.modules['sitecustomize'].__file__)"))
    assert said == (f"True {place.packages}/sitecustomize.py\n", 0)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda place, rank: place.environ.update(PLACE="2"), "the variable PLACE has changed"),
        (lambda place, rank: place.argv.append("--more"), "the command has changed"),
        (lambda place, rank: (rank.child.kill(), rank.child.wait()), "a rank that waits has ended"),
        (lambda place, rank: place.install("framework", "newer"), "what is installed has changed"),
        (lambda place, rank: place.install("another", ""), "what is installed has changed"),
    ],
)
def test_what_does_not_fit_any_more_is_not_used(place: Place, change: Any, why: str) -> None:
    rank = place.park("open('it-ran', 'w')")
    change(place, rank)
    assert (rank.take(place.argv, place.environ, "cold") or "").startswith(why)
    assert rank.child.poll() is not None
    assert not (place.root / "it-ran").exists()


def test_a_variable_that_an_import_has_read_keeps_the_rank_from_going_on(place: Place) -> None:
    place.install("framework", "import os\nrank = os.environ.get('RANK')")
    rank = place.park("open('it-ran', 'w')")
    why = rank.take(place.argv, {**place.environ, "RANK": "3"}, "cold")
    assert why == "the variable RANK, which an import has read, has changed"
    assert not (place.root / "it-ran").exists()


def test_what_differs_between_generations_is_given(place: Place) -> None:
    script = "import os, framework\nprint(os.environ['RANK'], list(os.environ)[-1], framework.__name__)"
    assert place.run(place.park(script), RANK="3", JOBCTL_GENERATION="2") == ("3 JOBCTL_GENERATION framework\n", 0)


@pytest.mark.every_python
def test_a_script_that_changes_a_variable_first_starts_again_cold(place: Place) -> None:
    """It would have changed what the import does, so it must: OMP_NUM_THREADS is read by libraries as they are loaded."""
    place.install("framework", "import os\nthreads = os.environ.get('OMP_NUM_THREADS')")
    script = (
        "import os\nprint('begins')\nos.environ['OMP_NUM_THREADS'] = '3'\nimport framework\nprint(framework.threads)"
    )
    assert place.run(place.park(script)) == ("begins\nbegins\n3\n", 0)
    why = "the script changes OMP_NUM_THREADS before it imports framework; set it in `env`"
    assert (place.root / "0.cold").read_text() == why


def test_a_script_that_imports_from_another_place_starts_again_cold(place: Place) -> None:
    (place.root / "mine").mkdir()
    (place.root / "mine" / "framework.py").write_text("mine = True")
    script = f"import sys\nsys.path.insert(0, {str(place.root / 'mine')!r})\nimport framework\nprint(framework.mine)"
    assert place.run(place.park(script)) == ("True\n", 0)
    assert (place.root / "0.cold").read_text() == "the script has framework imported from another place"


LATER = "import os, framework\nos.environ[{!r}] = '3'\nimport later\nprint(later.level)"


def test_what_a_later_import_would_have_read_ends_the_rank(place: Place) -> None:
    """The framework is in use by then: starting at the first line again could leave the others waiting."""
    place.install("later", "import os\nlevel = os.environ.get('LEVEL')")
    said, code = place.run(place.park(LATER.format("LEVEL"), ["framework"], ["later"]))
    assert code == 1
    assert said.startswith("standby: the script changes LEVEL before it imports later; set it in `env`; ")
    assert "LEVEL" in (place.root / "0.cold").read_text()


def test_what_a_later_import_has_not_read_may_change(place: Place) -> None:
    place.install("later", "import os\nlevel = os.environ.get('LEVEL')")
    assert place.run(place.park(LATER.format("OTHER"), ["framework"], ["later"])) == ("None\n", 0)


def test_what_an_import_changes_is_changed_by_the_scripts_import(place: Place) -> None:
    place.install("framework", "import os\nos.environ['MADE'] = 'here'\nos.environ.pop('PLACE')")
    script = (
        "import os\nprint('MADE' in os.environ)\nimport framework\nprint(os.environ['MADE'], 'PLACE' in os.environ)"
    )
    assert place.run(place.park(script)) == ("False\nhere False\n", 0)


@pytest.mark.every_python
def test_each_package_is_given_back_by_its_own_import(place: Place) -> None:
    (place.packages / "parts").mkdir()
    (place.packages / "parts" / "__init__.py").write_text("")
    (place.packages / "parts" / "inner.py").write_text("import sys\nsys.stderr.write('inner\\n')")
    place.install("framework", "import parts.inner")
    script = "import sys\nfrom parts.inner import sys as s\nprint('framework' in sys.modules, 'parts' in sys.modules)\nimport framework"
    assert place.run(place.park(script)) == ("inner\nFalse True\n", 0)


EFFECTS = """\
import logging, signal, sys, warnings
logging.getLogger().addHandler(logging.NullHandler())
logging.getLogger().setLevel(5)
sys.setrecursionlimit(5000)
sys.excepthook = lambda *of: None
sys.meta_path.append(type("Finder", (), {"find_spec": staticmethod(lambda name, path=None, target=None: None)}))
warnings.filterwarnings("ignore", "of the framework")
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
"""
SHOW = """\
import logging, signal, sys, warnings
def show():
    with open("/proc/self/status") as file:
        ignored = [line.split()[1] for line in file if line.startswith("SigIgn")]
    finders = [getattr(finder, "__name__", "-") for finder in sys.meta_path][-1]
    hooked, words = sys.excepthook is not sys.__excepthook__, [of[1].pattern for of in warnings.filters if of[1]]
    found = [logging.root.handlers, logging.root.level, sys.getrecursionlimit(), hooked, finders, words]
    print(found, ignored, signal.getsignal(signal.SIGUSR1), flush=True)
show()
"""


@pytest.mark.every_python
def test_what_an_import_does_to_its_process_is_done_by_the_scripts_import(place: Place) -> None:
    place.install("framework", EFFECTS)
    script = SHOW + "warnings.filterwarnings('ignore', 'my own')\nimport framework\nshow()"
    warm, code = place.run(place.park(script))
    assert (code, (place.root / "0.cold").exists()) == (0, False)
    cold = subprocess.run(place.argv, env=place.environ, capture_output=True, text=True, check=True).stdout
    assert warm.splitlines() == cold.splitlines()
    first, second = warm.splitlines()
    assert first.startswith("[[], 30, 1000, False, 'PathFinder', []]")
    assert second.startswith("[[<NullHandler (NOTSET)>], 5, 5000, True, 'Finder', ['of the framework', 'my own']]")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("logging.basicConfig()", "the handlers of the root logger"),
        ("logging.root.setLevel(40)", "the level of the root logger"),
        ("sys.excepthook = print", "sys.excepthook"),
        ("signal.signal(signal.SIGUSR1, lambda *of: None)", "the handler of signal 10"),
    ],
)
def test_a_script_that_does_the_same_to_its_process_first_starts_again_cold(place: Place, line: str, what: str) -> None:
    """The import might find that it has nothing to do, or keep what was there before."""
    place.install("framework", EFFECTS)
    said = place.run(place.park(f"import logging, signal, sys\nprint('begins')\n{line}\nimport framework"))
    assert said == ("begins\nbegins\n", 0)
    assert (place.root / "0.cold").read_text() == f"the script changes {what} before it imports framework"


@pytest.mark.every_python
def test_a_script_may_ask_whether_there_is_a_module_without_importing_it(place: Place) -> None:
    """As many libraries do for torch: what they find is what there is, and it is imported once."""
    (place.packages / "parts").mkdir()
    (place.packages / "parts" / "__init__.py").write_text("import sys\nsys.times = getattr(sys, 'times', 0) + 1\n")
    place.install("framework", "import parts")
    script = """\
import importlib.util, sys
for name in ("framework", "parts"):
    spec = importlib.util.find_spec(name)
    print(name, spec.name, spec.origin, spec.has_location, spec.cached, spec.parent, spec.submodule_search_locations)
    print(spec.loader.get_filename(name), spec.loader.is_package(name), name in sys.modules)
loaded = importlib.util.find_spec("parts").loader.load_module("parts")
import framework, parts
print(loaded is parts, sys.times, framework.parts is parts, parts.__spec__.loader.__class__.__name__)
"""
    warm, code = place.run(place.park(script))
    assert code == 0
    assert warm == subprocess.run(place.argv, env=place.environ, capture_output=True, text=True, check=True).stdout
    assert not (place.root / "0.cold").exists()


FORK = """\
import os
print("begins", flush=True)
if os.fork() == 0:
    os.environ["OMP_NUM_THREADS"] = "3"
    import framework
    os._exit(0)
os.wait()
"""


def test_a_fork_of_a_rank_does_not_become_a_second_one(place: Place) -> None:
    """It cannot start again cold by itself: the rank ends, and the next one starts cold."""
    said, code = place.run(place.park(FORK))
    why = "the script changes OMP_NUM_THREADS before it imports framework; set it in `env`"
    assert said == f"begins\nstandby: {why}; this process ends, and the next one starts cold\n"
    assert (code, (place.root / "0.cold").read_text()) == (-signal.SIGKILL, why)
