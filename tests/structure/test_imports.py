"""Imports point down only, and what touches the world stays in few packages (docs/architecture.md)."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from jobctl.jobspec.render.launcher import ORDER
from tests.tools.syntax import statements

ROOT = Path(__file__).parents[2]

# From the top down: a package may import from itself and from those below it. The launcher is at the bottom, as it runs alone
# where nothing else is installed.
PACKAGES = (
    ("jobctl", "cli"),
    ("jobctl.jobspec", "jobspec/__init__.py"),
    ("jobctl.jobspec.operations", "jobspec/operations"),
    ("jobctl.jobspec.supervise", "jobspec/supervise"),
    ("jobctl.jobspec.notify", "jobspec/notify"),
    ("jobctl.jobspec.report", "jobspec/report"),
    ("jobctl.jobspec.deploy.kubernetes", "jobspec/deploy/kubernetes"),
    ("jobctl.jobspec.deploy.slurm", "jobspec/deploy/slurm"),
    ("jobctl.jobspec.deploy.targets", "jobspec/deploy/targets"),
    ("jobctl.jobspec.deploy.ssh_server", "jobspec/deploy/ssh_server"),
    ("jobctl.jobspec.deploy.channels", "jobspec/deploy/channels"),
    ("jobctl.jobspec.deploy.check", "jobspec/deploy/check"),
    ("jobctl.jobspec.deploy.sending", "jobspec/deploy/sending"),
    ("jobctl.jobspec.deploy.images", "jobspec/deploy/images"),
    ("jobctl.jobspec.deploy.host", "jobspec/deploy/host"),
    ("jobctl.jobspec.deploy.apply", "jobspec/deploy/apply"),
    ("jobctl.jobspec.deploy.logs", "jobspec/deploy/logs"),
    ("jobctl.jobspec.deploy.store", "jobspec/deploy/store"),
    ("jobctl.jobspec.deploy.transport", "jobspec/deploy/transport"),
    ("jobctl.jobspec.deploy.model", "jobspec/deploy/model"),
    ("jobctl.jobspec.render", "jobspec/render"),
    ("jobctl.jobspec.planner", "jobspec/planner"),
    ("jobctl.jobspec.frameworks", "jobspec/frameworks"),
    ("jobctl.jobspec.plan", "jobspec/plan"),
    ("jobctl.jobspec.importers", "jobspec/importers"),
    ("jobctl.jobspec.spec", "jobspec/spec"),
    ("jobctl.jobspec.allocation", "jobspec/allocation"),
    ("jobctl.jobspec.records", "jobspec/records.py"),
    ("jobctl.jobspec.launcher", "jobspec/launcher"),
)
WORLD = {"subprocess", "socket", "socketserver", "fabric", "docker", "paramiko", "kubernetes", "websocket"}
TOUCHES = {  # the packages that reach the world, and by what
    "jobctl.jobspec.deploy.kubernetes": {"kubernetes", "websocket"},
    "jobctl.jobspec.deploy.targets": {"subprocess", "socket", "fabric", "docker"},
    "jobctl.jobspec.deploy.channels": {"subprocess", "socket"},
    "jobctl.jobspec.deploy.check": {"subprocess", "socket"},
    "jobctl.jobspec.deploy.images": {"subprocess", "socket", "docker"},
    "jobctl.jobspec.deploy.host": {"subprocess", "socket", "docker", "paramiko"},
    "jobctl.jobspec.deploy.ssh_server": {"paramiko"},
    "jobctl.jobspec.deploy.store": {"socket"},
    "jobctl.jobspec.deploy.transport": {"subprocess", "socket", "fabric", "paramiko"},
    "jobctl.jobspec.allocation": {"subprocess", "socket"},
    "jobctl.jobspec.launcher": {"subprocess", "socket"},
    "jobctl.jobspec.operations": {"socket"},  # the name of this machine
}
# Those that may sleep: deploy.apply has the clock, which tests replace.
SLEEP = {*TOUCHES, "jobctl.jobspec.deploy.apply"} - {"jobctl.jobspec.operations"}


def _files(where: str) -> list[Path]:
    path = ROOT / where
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


@cache
def _tree(path: Path) -> ast.Module:
    """Return the syntax of a file, which nobody changes: the tests parse each file once."""
    return ast.parse(path.read_text(), str(path))


def _walk(path: Path, *words: str) -> Iterator[ast.AST]:
    """Yield what is in the syntax of a file, nothing where it has none of these words."""
    if any(word in path.read_text() for word in words):
        yield from ast.walk(_tree(path))


@cache
def _imports(path: Path) -> Sequence[tuple[str, int]]:
    return tuple(_imported(statements(_tree(path))))


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            if not all(map(_is_file, names)):  # what is taken is in the package itself, not only below it
                yield node.module or "", node.lineno
            yield from ((name, node.lineno) for name in names)


@cache
def _is_file(module: str) -> bool:
    path = ROOT / module.removeprefix("jobctl.").replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def _package(module: str) -> int | None:
    """Return the number of the package that `module` belongs to, None for what is not ours."""
    best = None
    for number, (name, _) in enumerate(PACKAGES):
        ours = module == name or module.startswith(f"{name}.")
        if ours and (best is None or len(name) > len(PACKAGES[best][0])):
            best = number
    return best


@pytest.mark.parametrize("number", range(len(PACKAGES)), ids=[name for name, _ in PACKAGES])
def test_imports_point_down_only(number: int) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for path in _files(PACKAGES[number][1])
        for module, line in _imports(path)
        if module.startswith("jobctl.") and (other := _package(module)) is not None and other < number
    ]
    assert wrong == []


def test_a_file_of_the_launcher_imports_only_what_is_below_it() -> None:
    """The standard library only, and of the launcher what comes before it in ORDER; types may be named before they are there."""
    package = "jobctl.jobspec.launcher"
    folder = ROOT / "jobspec/launcher"
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.py"))
    assert sorted(ORDER) == sorted(name for name in names if not name.endswith("__init__"))
    for number, name in enumerate(ORDER):
        tree = _tree(ROOT / f"jobspec/launcher/{name}.py")
        nodes = statements(*(part for part in tree.body if not _is_for_types(part)))
        modules = {module for module, _ in _imported(nodes)}
        below = {f"{package}.{other.replace('/', '.')}" for other in ORDER[:number]}
        known = {
            m
            for m in modules
            if m.split(".")[0] in sys.stdlib_module_names or m in below or m.rpartition(".")[0] in below
        }
        assert modules == known, (name, modules - known)


def test_only_some_packages_touch_the_world() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for name, where in PACKAGES
        for path in _files(where)
        for module, line in _imports(path)
        if module.split(".")[0] in WORLD - TOUCHES.get(name, set())
    ]
    assert wrong == []


def test_only_what_touches_the_world_sleeps() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for name, where in PACKAGES
        if name not in SLEEP
        for path in _files(where)
        for node in _walk(path, "sleep")
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) == "time"
    ]
    assert wrong == []


def test_files_import_in_no_circle() -> None:
    """Imports within functions count, those for type checkers do not."""
    graph: dict[str, set[str]] = {}
    for _, where in PACKAGES:
        for path in _files(where):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(("jobctl", *(parts[1:] if parts[0] == "cli" else parts)))
            graph[name.removesuffix(".__init__")] = {module for module, _ in _imported(_without_types(_tree(path)))}
    known = {
        name: {module for module in modules if module in graph and module != name} for name, modules in graph.items()
    }
    try:
        graphlib.TopologicalSorter(known).prepare()
    except graphlib.CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def _without_types(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what is in a syntax tree, without what is for type checkers only."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        inner = (
            part for name in ("body", "orelse", "finalbody", "handlers", "cases") for part in getattr(node, name, ())
        )
        left += (child for child in inner if not _is_for_types(child))


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_only_the_command_prints() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for name, where in PACKAGES
        if name not in ("jobctl", "jobctl.jobspec.launcher")
        for path in _files(where)
        for node in _walk(path, "print", "input")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "input")
    ]
    assert wrong == []


def test_typer_and_rich_are_used_by_the_command_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for name, where in PACKAGES
        if name != "jobctl"
        for path in _files(where)
        for module, line in _imports(path)
        if module.split(".")[0] in {"typer", "click", "rich"}
    ]
    assert wrong == []


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from jobctl.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'fabric', 'docker', 'kubernetes', 'jinja2', 'rich', 'torch', 'pydantic'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_version_imports_no_command_and_help_reads_no_options() -> None:
    code = (
        "import sys\n"
        "from jobctl.main import main\n"
        "try:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
        "print('COMMANDS', sum(name.startswith('jobctl.commands.') for name in sys.modules))\n"
        "import typer.main\n"
        "typer.main.get_params_from_function = lambda function: print('READS', function.__name__) or {}\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
    )
    lines = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert "COMMANDS 0" in lines
    typers_own = {"READS install_callback", "READS show_callback"}  # of its options for completion
    assert {line for line in lines if line.startswith("READS")} - typers_own == {"READS _root", "READS command"}


def test_help_without_options_is_that_of_the_whole_command() -> None:
    from typer.testing import CliRunner

    from jobctl.main import COMMANDS, application, listed

    whole, short = (CliRunner().invoke(application(COMMANDS, *find), ["--help"]).output for find in ((), (listed,)))
    assert short == whole != ""


def test_importers_stand_on_the_language_alone() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for where in ("jobspec/plan", "jobspec/frameworks", "jobspec/planner", "jobspec/render", "jobspec/deploy")
        for path in _files(where)
        for module, line in _imports(path)
        if module.startswith("jobctl.jobspec.importers")
    ]
    assert wrong == []


def test_validate_does_not_pay_for_what_it_does_not_use(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\nframework: torch\nscript: train.py\nenv: {A: b}\n")
    (tmp_path / "train.py").touch()
    code = (
        "import sys\n"
        "from jobctl.main import main\n"
        "try:\n    main(['validate', 'job.yaml'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'fabric', 'docker', 'kubernetes', 'jinja2', 'rich', 'torch'}\n"
        "heavy |= {'jobctl.jobspec.deploy.targets.local.deployer', 'jobctl.jobspec.planner.job', 'jobctl.jobspec.render.artefact'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_a_job_on_this_machine_does_not_pay_for_hosts() -> None:
    """What brings it up, checks it and follows it knows neither SSH nor engines, nor what images and messages need."""
    code = (
        "import sys\n"
        "from jobctl.jobspec.deploy.check import local\n"
        "from jobctl.jobspec.deploy.targets.local.deployer import Local\n"
        "from jobctl.jobspec.notify.channels import keep_channels\n"
        "from jobctl.jobspec.operations.lifecycle.on_hosts import HostsJob\n"
        "heavy = {'fabric', 'docker', 'kubernetes', 'paramiko', 'tarfile', 'asyncio', 'http'}\n"
        "ours = ('deploy.transport.ssh', 'deploy.host.host_job', 'deploy.host.engine', 'deploy.host.images', 'notify.teller')\n"
        "heavy |= {f'jobctl.jobspec.{name}' for name in (*ours, 'deploy.check.checks', 'deploy.host.handing_on')}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_looking_at_a_job_does_not_pay_for_changing_it() -> None:
    code = (
        "import sys\n"
        "from jobctl.jobspec.operations.resolve.running import running_handle\n"
        "from jobctl.jobspec.operations.inspect.status import observe\n"
        "from jobctl.jobspec.operations.targets.hosts import OnHosts\n"
        "print('HEAVY', [name for name in sys.modules if name.startswith('jobctl.jobspec.operations.lifecycle.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_each_command_has_its_file() -> None:
    from jobctl.main import COMMANDS, function_of

    files = [path.stem.rstrip("_") for path in (ROOT / "cli/commands").glob("*.py") if path.stem != "__init__"]
    names = {name: name.replace("-", "_") for name in COMMANDS}
    assert sorted(files) == sorted(names.values())
    assert all(function_of(name).__name__.rstrip("_") == called for name, called in names.items())


def test_the_command_has_no_files_but_those_of_a_terminal() -> None:
    """What is done with jobs is in operations; each command, and what is shown, has a folder."""
    assert sorted(path.stem for path in (ROOT / "cli").glob("*.py")) == [
        "__init__",
        "__main__",
        "completion",
        "console",
        "main",
        "options",
    ]
