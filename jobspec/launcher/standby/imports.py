"""Modules that a rank has imported before its script runs, and how the script comes by them.

They are taken out of `sys.modules` again. The script's own import finds them through `Preloaded`, which first makes sure
that importing them now would have done the same.
"""

from __future__ import annotations

import _imp
import contextlib
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.standby.effects import CORES, Effects, logs, state_of_process
from jobctl.jobspec.launcher.standby.import_hooks import ImportHooks
from jobctl.jobspec.launcher.standby.inherited import Inherited
from jobctl.jobspec.launcher.standby.loggers import Loggers, named_loggers
from jobctl.jobspec.launcher.system.processes import kill_descendants

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Set, Tuple

    from jobctl.jobspec.launcher.standby.messages import RankPreparation
PACKAGES = ("site-packages", "dist-packages")  # folders of what is installed, and not the user's own code
DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/xpu", "/dev/hisi")


class NotClean(Exception):
    """An import that has left something behind that a rank must not begin with."""


def unclean(*known: int) -> None:
    """Raise NotClean where this process has a thread, a socket or a device that a rank must not begin with."""
    import threading

    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    names = [name_of_thread(thread) for thread in os.listdir("/proc/self/task")]
    others += [name for name in names if name not in (name_of_thread(str(os.getpid())), "")]
    if others:
        raise NotClean("an import has started the thread %s" % others[0])
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink("/proc/self/fd/%s" % number)
            if target.startswith(DEVICES):
                raise NotClean("an import has opened %s" % target)
            if target.startswith("socket:") and int(number) not in known:
                raise NotClean("an import has opened a socket")


def name_of_thread(thread: str) -> str:
    """Return the kernel's name of a thread of this process."""
    try:
        with open("/proc/self/task/%s/comm" % thread) as file:
            return file.read().strip()
    except OSError:
        return ""


class Readings(dict):  # type: ignore[type-arg]
    """The variables of a process; `names` are those that were asked for."""

    def __init__(self, values: Dict[bytes, bytes]) -> None:
        super().__init__(values)
        self.names: Set[bytes] = set()

    def __getitem__(self, name: bytes) -> bytes:
        self.names.add(name)
        value: bytes = super().__getitem__(name)
        return value


class Batch:
    """What one group of imports has brought: its modules, variables that they have read and changed, and other effects."""

    def __init__(self, names: Sequence[str], number: int) -> None:
        self.number = number
        variables: Any = os.environ
        kept = variables._data  # os.environb has the same one
        readings = variables._data = Readings(kept)
        before, environ, path, state = set(sys.modules), dict(kept), list(sys.path), state_of_process()
        loggers = set(named_loggers())
        try:
            import_(names[0])
            first = set(sys.modules) - before
            for name in names[1:]:
                import_(name)
        finally:
            kept.clear()
            kept.update(dict(readings))
            variables._data = kept
        names_in_order = [*readings, *(name for name in environ if name not in readings)]
        changed = [name for name in names_in_order if environ.get(name) != readings.get(name)]
        self.top, self.changes = names[0].partition(".")[0], {os.fsdecode(n): readings.get(n) for n in changed}
        if sys.path != path:
            raise NotClean("importing %s changes sys.path" % names[0])
        self.effects, self.loggers = Effects(state, state_of_process()), Loggers(loggers, is_installed)
        self.read = {os.fsdecode(name) for name in readings.names} | set(self.changes)
        added = [name for name in sys.modules if name not in before]
        tops = {top: is_installed(top) for top in {name.partition(".")[0] for name in added}}
        self.modules = {name: sys.modules[name] for name in added if tops[name.partition(".")[0]]}
        self.brought = first & set(self.modules)  # by the first import alone
        self.origins = {top: origin_of(top) for top in tops}


def import_(name: str) -> None:
    """Import a module. Raises NotClean."""
    try:
        importlib.import_module(name)
    except BaseException as error:  # a module may even exit
        raise NotClean("importing %s fails: %s: %s" % (name, type(error).__name__, error)) from error


def origin_of(top: str) -> Optional[str]:
    """Return where a top-level module would be imported from now, None for nowhere."""
    from importlib.machinery import PathFinder

    found = PathFinder.find_spec(top)
    return found.origin if found is not None else None


def is_installed(top: str) -> bool:
    """Say whether a module is not part of Python itself."""
    module = sys.modules.get(top)
    if module is sys.modules["__main__"]:  # as `multiprocessing` calls it too
        return False
    if top in sys.builtin_module_names or getattr(getattr(module, "__spec__", None), "origin", None) == "frozen":
        return False
    path, library = getattr(module, "__file__", None) or "", os.path.dirname(os.__file__)
    return not path.startswith(library + os.sep) or any(part in PACKAGES for part in path.split(os.sep))


class Preloaded:
    """Modules that were imported before the script runs: a finder that gives them back when the script imports them.

    Each top-level package is given back by its own import, or by that of the package which needs it. Where a variable was
    changed before, or another file would be found, importing now would do something else: then the rank starts again, cold,
    at its first line; once the framework is in use, it ends instead.
    """

    def __init__(self, task: RankPreparation) -> None:
        self.command, self.first, self.inherited = task.command, task.first, Inherited()
        self.environ: Dict[str, str] = {}
        self.given = dict(os.environ)  # what the imports begin with
        self.cold = ""  # the file that says why this rank went on cold
        self.pid = 0  # of the rank: a script may fork before it imports
        main = sys.modules["__main__"]
        logs()  # imported before modules are searched where the script is
        with self.as_in_the_script():
            self.forbid_hiding()
            main.__file__ = os.path.join(self.first, task.name)  # some take it for a sign of a person who types
            try:
                self.batches = [Batch(names, number) for number, names in enumerate(task.imports)]
            finally:
                del main.__file__
        self.hidden: Dict[str, Tuple[Batch, ModuleType]] = {}
        for batch in self.batches:
            self.hidden.update((name, (batch, module)) for name, module in batch.modules.items())
        for path in self.files():
            if path.startswith(self.first + os.sep) and not any(part in PACKAGES for part in path.split(os.sep)):
                raise NotClean("an import loads %s, which is the job's own code" % path)
        self.hooks = ImportHooks(self)
        for batch in reversed(self.batches):
            batch.effects.undo()
            batch.loggers.note()
        unclean(task.fd)

    @contextlib.contextmanager
    def as_in_the_script(self) -> Iterator[None]:
        """Search for modules where the script will."""
        safe = getattr(sys.flags, "safe_path", False)
        if safe:
            yield
            return
        sys.path.insert(0, self.first)
        try:
            yield
        finally:
            sys.path.remove(self.first)
            sys.path_importer_cache.pop(self.first, None)

    def forbid_hiding(self) -> None:
        """Raise NotClean where a file beside the script has the name of one of Python's modules that is imported by now.

        The script means its own file, and would get Python's.
        """
        with contextlib.suppress(OSError):
            for name in sorted({entry.partition(".")[0] for entry in os.listdir(self.first)} & set(sys.modules)):
                origin = getattr(getattr(sys.modules[name], "__spec__", None), "origin", None)
                mine = origin_of(name) if origin not in (None, "built-in", "frozen") else None
                if mine is not None and mine != origin:
                    raise NotClean("%s has the name of a module of Python's" % mine)

    def files(self) -> List[str]:
        """Return the files of the modules."""
        return [path for _, module in self.hidden.values() for path in [getattr(module, "__file__", None)] if path]

    def signature(self) -> List[Tuple[str, int, int]]:
        """Return what changes when something is installed: interpreter, folders of packages, their first files, other files."""
        tops = {name for name in self.hidden if "." not in name}
        paths = {os.path.realpath(sys.executable), *(path for path in sys.path if os.path.basename(path) in PACKAGES)}
        for name, (_, module) in self.hidden.items():
            path = getattr(module, "__file__", None)
            if path and (name in tops or not any(part in PACKAGES for part in path.split(os.sep))):
                paths.add(path)
        found = []
        for path in sorted(paths):
            with contextlib.suppress(OSError):
                stat = os.stat(path)
                found.append((path, stat.st_mtime_ns, stat.st_ino))
        return found

    def changed_variable(self, environ: Dict[str, str]) -> Optional[str]:
        """Return a variable that an import has read, and that `environ` has another value of; None if there is none."""
        read = {name for batch in self.batches for name in batch.read}
        return min((name for name in read if environ.get(name) != self.given.get(name)), default=None)

    def hide(self, cold: str) -> None:
        """Take the modules out of sight, until they are imported."""
        self.cold, self.environ, self.pid = cold, dict(os.environ), os.getpid()
        for name in self.hidden:
            sys.modules.pop(name, None)
        if self.hidden:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return how a hidden module is imported, None for any other. Scripts ask for this without importing: it changes nothing."""
        if name not in self.hidden:
            return None
        return Again(name, self.hidden[name][1], self.give_back).described()

    def give_back(self, name: str) -> None:
        """Have a module not be hidden any more, nor what its import brings."""
        _imp.acquire_lock()  # several threads may import
        try:
            if name in self.hidden:  # else another import has brought it since it was found
                self.give_back_with_others(name)
        finally:
            _imp.release_lock()

    def give_back_with_others(self, name: str) -> None:
        """Have a hidden module be imported; what else that brings is in `sys.modules` then."""
        batch = self.hidden[name][0]
        top = name.partition(".")[0]
        tops = self.given_with(batch, top)
        own = [o for o, (b, _) in self.hidden.items() if b is batch and o.partition(".")[0] in tops]
        given = {o: self.hidden[o][1] for o in own if o.partition(".")[0] == top or o in batch.brought}
        why = self.difference(batch, top) or self.moved_package(batch, tops)
        if not why:
            what = self.change_by_script(batch, name, given)
            why = "the script changes %s before it imports %s" % (what, top) if what else None
        if why:
            self.refuse(batch, why)
        sys.modules.update((other, given[other]) for other in given if other != name)
        for other in given:
            del self.hidden[other]
        # What other packages of the batch have added is not told apart: all of it comes with the first of them.
        batch.effects.repeat(growing=top != batch.top)
        if top == batch.top:
            batch.loggers.enable()
            self.change(batch)
        if not self.hidden:
            sys.meta_path.remove(self)

    def change_by_script(self, batch: Batch, name: str, given: Dict[str, ModuleType]) -> Optional[str]:
        """Return what the script has changed that importing these modules now would meet, None if there is nothing."""
        brings_all = name.partition(".")[0] == batch.top
        what = self.hooks.conflict(given, name) or batch.effects.conflict(growing=not brings_all)
        if what is None and brings_all and self.is_first(batch):
            what = batch.loggers.conflict()  # a rank that has begun does not end for what is logged
        return what

    def is_first(self, batch: Batch) -> bool:
        """Say whether this is the framework, and the script has not imported it yet: it cannot have met the others."""
        return batch.number == 0 and batch.top in self.hidden

    def given_with(self, batch: Batch, top: str) -> Set[str]:
        """Return the packages that importing this one imports: with the first one of a batch come all that it needs."""
        if top != batch.top:
            return {top}
        return {top} | {name.partition(".")[0] for name in batch.brought & set(self.hidden)}

    def moved_package(self, batch: Batch, tops: Set[str]) -> Optional[str]:
        """Say which of these packages would be imported from another place now, None if none would."""
        moved = sorted(top for top in tops if not self.is_where_it_was(batch, top))
        return "the script has %s imported from another place" % moved[0] if moved else None

    @staticmethod
    def is_where_it_was(batch: Batch, top: str) -> bool:
        """Say whether a package of a batch would be imported from the same place now."""
        known = batch.modules.get(top)
        origin = getattr(getattr(known, "__spec__", None), "origin", None)
        return known is None or not origin or not os.path.exists(origin) or origin_of(top) == batch.origins[top]

    def change(self, batch: Batch) -> None:
        """Change the variables as the import has, which did so before this process got its own."""
        for name, value in batch.changes.items():
            if value is not None:
                os.environ[name] = self.environ[name] = os.fsdecode(value)
            elif os.environ.pop(name, None) is not None:
                del self.environ[name]
        batch.changes = {}

    def difference(self, batch: Batch, top: str) -> Optional[str]:
        """Say why importing a package now would not do what importing it early has done, None if it would."""
        now = dict(os.environ)
        changed = sorted(n for n in now.keys() | self.environ.keys() if now.get(n) != self.environ.get(n))
        first = self.is_first(batch)
        relevant = [name for name in changed if first or name in batch.read]
        if relevant:
            return "the script changes %s before it imports %s; set it in `env`" % (relevant[0], top)
        # Libraries count them as they are loaded.
        if first and os.sched_getaffinity(0) != self.inherited.cores:
            return "the script changes %s before it imports %s" % (CORES, top)
        return None

    def refuse(self, batch: Batch, why: str) -> NoReturn:
        """Start this rank again at its first line, cold; end it where it may have met the others already.

        A fork of the rank ends it, too: at the first line it would be a second rank of the same number.
        """
        with contextlib.suppress(OSError), open(self.cold, "w", encoding="utf-8") as file:
            file.write(why)
        sys.stdout.flush()
        sys.stderr.flush()
        kill_descendants()
        forked = os.getpid() != self.pid
        if forked or not self.is_first(batch):
            os.write(2, os.fsencode("standby: %s; this process ends, and the next one starts cold\n" % why))
            if forked:
                os.kill(self.pid, signal.SIGKILL)
            os._exit(1)
        self.inherited.give_back()
        os.execvpe(self.command[0], self.command, self.environ)


class Again:
    """Loads a module that was loaded before. In all else it is the loader of the module."""

    def __init__(self, name: str, module: ModuleType, give_back: Callable[[str], None]) -> None:
        self.name, self.module, self.give_back = name, module, give_back
        self.spec = getattr(module, "__spec__", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(vars(self).get("spec"), "loader", None), name)

    def described(self) -> Any:
        """Return a spec with this loader that tells of the module what its own one does."""
        from importlib.machinery import ModuleSpec

        spec = ModuleSpec(self.name, None)
        vars(spec).update({**getattr(self.spec, "__dict__", {}), "name": self.name, "loader": self})
        return spec

    def create_module(self, spec: Any) -> ModuleType:
        """Return it."""
        self.give_back(self.name)
        return self.module

    def load_module(self, name: str) -> ModuleType:
        """Import it, as callers of the old protocol of loaders do."""
        return importlib.import_module(name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing; what the import system has noted on it is undone."""
        module.__spec__ = self.spec
