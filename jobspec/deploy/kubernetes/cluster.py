"""Target `kubernetes`: a job as objects of a cluster, whose operator (or Job controller) owns recovery.

There is no supervisor and no generation of jobctl's there, so this is a `Handle` and no `Deployer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from jobctl.jobspec.deploy.apply.deployer import AllUnreachable, Failures
from jobctl.jobspec.deploy.apply.reconcile import Step
from jobctl.jobspec.deploy.kubernetes import pod_log_archive, pod_logs
from jobctl.jobspec.deploy.kubernetes.access import place_name
from jobctl.jobspec.deploy.kubernetes.api import Api
from jobctl.jobspec.deploy.kubernetes.claim import create_first, foreign
from jobctl.jobspec.deploy.kubernetes.dry_run import refuse_kept, refuse_unaccepted
from jobctl.jobspec.deploy.kubernetes.events import ClusterEvents, newest_warning
from jobctl.jobspec.deploy.kubernetes.job_state import NO_POD, is_over, is_stopped, observe, owners_of
from jobctl.jobspec.deploy.kubernetes.kinds import (
    BESIDE,
    EVENT,
    MAIN,
    POD,
    Kind,
    Object,
    ObjectKey,
    is_made_by_another,
    key_of,
    labels_of,
    suspension,
)
from jobctl.jobspec.deploy.kubernetes.manifests import is_main, manifests, may_have, with_known_secrets, with_secrets
from jobctl.jobspec.deploy.kubernetes.mirror import JobMirror, Mirror, find_all_of
from jobctl.jobspec.deploy.kubernetes.pod_commands import PodCommands
from jobctl.jobspec.deploy.kubernetes.pods import Pod, parse_pod, seconds
from jobctl.jobspec.deploy.kubernetes.ports import PodPorts
from jobctl.jobspec.deploy.kubernetes.preflight import ClusterPreflight
from jobctl.jobspec.deploy.kubernetes.problems import ApiError
from jobctl.jobspec.deploy.kubernetes.removal import Removal
from jobctl.jobspec.deploy.kubernetes.session import PodSession
from jobctl.jobspec.deploy.kubernetes.steps import There, resumed_as_it_is, steps
from jobctl.jobspec.deploy.model.control import NOTHING, Control
from jobctl.jobspec.deploy.model.errors import DeployError, HostError, NothingToEnter
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.log_lines import LineSelection, Reader
from jobctl.jobspec.deploy.model.observed import Observed, phase
from jobctl.jobspec.deploy.store.archive import free_folder
from jobctl.jobspec.deploy.store.events import Events
from jobctl.jobspec.deploy.store.jobdir import JobDir
from jobctl.jobspec.deploy.store.lock import JobLock, nothing_begun
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.records import dataclass
from jobctl.jobspec.render.marks import JOB, QUEUE_LABEL, label_of

TAIL = 20  # lines of a log that tell why it ended


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """What `up` is about to do."""

    want: tuple[Object, ...]
    there: There
    steps: tuple[Step, ...]

    @property
    def owners(self) -> frozenset[str]:
        """The owners of the objects that it is about."""
        return owners_of(self.there.objects.values())

    @property
    def ending(self) -> frozenset[str]:
        """What is removed, or made again."""
        return frozenset(step.target for step in self.steps if step.kind in ("remove", "replace"))

    @property
    def keeps_nothing(self) -> bool:
        """Whether nothing of the job is there before its first object is made, by which others see whose it is."""
        return all(str(key) in self.ending for key in self.there.objects)

    @property
    def going(self) -> list[Object]:
        """The objects of these."""
        return [thing for key, thing in self.there.objects.items() if str(key) in self.ending]

    def making(self, secrets: Mapping[str, str]) -> list[Object]:
        """Return what is created, changed or made again."""
        todo = {step.target for step in self.steps}
        return [thing for thing in with_secrets(self.want, secrets) if str(key_of(thing)) in todo]

    def applied(self, secrets: Mapping[str, str]) -> list[Object]:
        """Return what of that the server gets in a new form."""
        todo = {step.target: step for step in self.steps}
        made = self.making(secrets)
        return [thing for thing in made if resumed_as_it_is(thing, todo[str(key_of(thing))], self.there) is None]


class Cluster:
    """One job in one namespace of a cluster. `kinds` are those that it consists of, None if that is not known here."""

    interval = 0.3  # what is looked at is kept true by watches

    def __init__(self, job: JobDir, api: Api, plan: Plan | None = None, kinds: Sequence[Kind] | None = None) -> None:
        self.job, self.api, self.kinds = job, api, kinds
        self._lock = JobLock(job.lock)
        api.guard = self.check_here
        self.plan = plan or job.plan()
        self.tell: Callable[[str], None] = lambda text: None
        self.unchanged = (
            False  # whether the plan is known to come from the spec and code that the job was brought up with
        )
        self._mirrors: dict[Kind, JobMirror] = {}
        self._events: Mirror | None = None
        self._failures: dict[str, DeployError] = {}
        self._last_words: tuple[str, ...] | None = None
        self._made: tuple[Plan, list[Object]] | None = None

    @property
    def failures(self) -> Failures:
        """Why the cluster did not answer when last observed, or logs could not be fetched."""
        return self._failures

    def places(self) -> tuple[str, ...]:
        """The cluster and the namespace."""
        return (place_name(self.api.name, self.api.namespace),)

    def has_files(self) -> bool:
        """Say whether anything of the job is in the cluster, even without a pod."""
        return bool(self.objects())

    def owners(self, observed: Observed) -> frozenset[str]:
        """Return the owners of all objects of the job; those that make pods may be gone, as some time after their end."""
        return observed.owners if observed.unreachable else observed.owners | owners_of(self.objects().values())

    def lock(self, command: str, *, break_it: bool = False) -> AbstractContextManager[object]:
        """Hold the job's lock while steps are applied: on this machine; others have another owner, and are refused."""
        return self._lock.hold(command, break_it=break_it)

    def check_here(self) -> None:
        """Raise LockLost if we have lost the lock."""
        self._lock.check()

    # Looking.

    def observe(self) -> Observed:
        """Read what runs. Raises AllUnreachable if the cluster does not answer."""
        name = self.places()[0]
        try:
            mains = [
                thing for kind in self._of(MAIN) for thing in self._mirrored(kind) if not is_made_by_another(thing)
            ]
            pods = self._mirrored(POD)
        except HostError as error:
            self._failures = {name: error}
            nothing = Observed(NOTHING, (), None, {name: error.message})
            raise AllUnreachable(self._failures, nothing, "") from error  # the failure says it all
        self._failures = {}
        return self._with_last_words(self._with_cause(observe(mains, pods, self.plan), mains, pods))

    def _with_cause(self, observed: Observed, mains: Sequence[Object], pods: Sequence[Object]) -> Observed:
        """Return what was seen; where a pod could not be made, with what the cluster says of that."""
        now, reason = observed.verdict or ("unknown", None)
        none = (reason or "").startswith(NO_POD)
        lacks = now in ("starting", "restarting") and any(node.container is None for node in observed.nodes)
        if not (none or lacks):
            return observed
        self._events = self._events or Mirror(self.api, EVENT, "")
        since = max(seconds(one["metadata"].get("creationTimestamp")) or 0.0 for one in (*mains, *pods))
        try:
            why = newest_warning(self._events.objects(), self.job.name, since, of_pods=none)
        except DeployError:
            return observed
        told = NO_POD if none else reason
        return replace(observed, verdict=(now, f"{told}: {why}" if told else why)) if why else observed

    def _with_last_words(self, observed: Observed) -> Observed:
        """Return what was seen, with the end of the log of what failed first, where the pod does not hold it itself."""
        failed = observed.control.ledger.failures
        if not failed or failed[0].tail:
            return observed
        if self._last_words is None:
            name = next((node.container for node in observed.nodes if node.node == failed[0].node), None)
            pod = next((pod for pod in self.pods() if pod.name == name), None)
            self._last_words = pod_logs.last_lines(self.api, pod, TAIL) if pod else ()
        ledger = replace(observed.control.ledger, failures=(replace(failed[0], tail=self._last_words),))
        return replace(observed, control=Control(None, ledger))

    def _of(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Return those of `kinds` that the job may consist of."""
        return [kind for kind in kinds if self.kinds is None or kind in self.kinds or kind is POD]

    def _mirrored(self, kind: Kind) -> list[Object]:
        mirror = self._mirrors.setdefault(kind, JobMirror(self.api, kind, self.job.name))
        return self._tolerating(kind, mirror.objects)

    def _tolerating(self, kind: Kind, read: Callable[[], list[Object]]) -> list[Object]:
        """Return nothing of a kind that is not served here, or that nobody gave a right to: it cannot be the job's."""
        try:
            return read()
        except ApiError as error:
            forbidden = error.status == 403 and self.kinds is None  # no others than `kinds` are looked for
            if error.status == 404 or (forbidden and not may_have(kind, self.plan)):
                return []
            raise

    def pods(self) -> list[Pod]:
        """Return the job's pods."""
        return [parse_pod(pod) for pod in self._mirrored(POD)]

    def objects(self) -> dict[ObjectKey, Object]:
        """Return what the job consists of, without what controllers made."""
        return {
            key_of(thing): thing
            for kind in self._of((*MAIN, *BESIDE))
            for thing in self._tolerating(kind, lambda kind=kind: find_all_of(self.api, kind, self.job.name))  # type: ignore[misc]
            if not is_made_by_another(thing)
        }

    # Bringing up.

    def change(
        self, plan: Plan, secrets: Mapping[str, str], *, anew: str | None = None, force: bool = False
    ) -> ObjectChange:
        """Look at what is there, and return what there is to do. `secrets` are the values known here. Raises Foreign."""
        want = self._manifests(plan)
        self.plan = plan
        there = self.objects()
        kinds = [self.api.kind_of(thing) for thing in (*want, *there.values())]
        self.kinds = list(dict.fromkeys([*(self.kinds or ()), *kinds]))
        for thing in want:
            key = key_of(thing)
            if key not in there and (found := self.api.find(self.api.kind_of(thing), key.name)) is not None:
                if not force and label_of(found, JOB) != self.job.name:
                    raise foreign(self.places()[0], found)
                there[key] = found
        would = {
            key: self.api.apply(with_known_secrets(thing, there[key], secrets), dry_run=True, force=force)
            for thing in want
            if (key := key_of(thing)) in there and not is_main(thing)
        }
        seen = There(there, would, phase(self.observe())[0], self.unchanged)
        return ObjectChange(tuple(want), seen, steps(want, seen, anew))

    def _manifests(self, plan: Plan) -> list[Object]:
        """Return the objects of a plan, made once for all looks at them."""
        if self._made is None or self._made[0] is not plan:
            self._made = (plan, manifests(plan))
        return self._made[1]

    def try_out(self, change: ObjectChange, secrets: Mapping[str, str], *, force: bool = False) -> None:
        """Ask the server whether it accepts what `change` makes, before anything is changed. Raises DeployError."""
        refuse_kept(self.api, change.going)
        refuse_unaccepted(self.api, change.applied(secrets), change.ending, force=force)

    def execute(
        self, change: ObjectChange, secrets: Mapping[str, str], note: Callable[[Step], None], *, force: bool = False
    ) -> Path | None:
        """Do what `change` says, once it was tried out, telling `note` of each step before it is done. Raises DeployError, Foreign.

        Return where the logs of pods are that it has ended: nothing else has them then.
        """
        todo = {step.target: step for step in change.steps}
        ending, going, making = change.ending, change.going, change.making(secrets)
        for step in (step for step in change.steps if step.target in ending):
            note(step)
        removal = self._removal(self._grace())
        with self._collecting() if any(map(is_main, going)) else nullcontext() as archive:
            removal.remove(going)
        if any(is_main(thing) and todo[str(key_of(thing))].kind != "change" for thing in making):
            # Somebody may have deleted what they were made of: what is made now would not wait for their end.
            removal.remove_pods(but_of=[o for key, o in change.there.objects.items() if str(key) not in ending])
        first = making[0] if making and change.keeps_nothing and not force else None
        for thing in making:
            todo_now = todo[str(key_of(thing))]
            if todo_now.kind != "replace":
                note(todo_now)
            self.tell(f"{todo_now.kind} {todo_now.target}")
            if thing is first:
                made = create_first(self.api, self.places()[0], thing, lambda: self.objects().values())
            else:
                made = resumed_as_it_is(thing, todo_now, change.there) or self.api.apply(thing, force=force)
            if is_main(thing) and todo_now.kind == "change" and is_stopped(made):
                self.api.merge(made, suspension(made, False) or {})
        self._forget_looks()  # a watch that lags could show pods, and not yet what they are made of
        return archive.place if archive is not None else None

    def _grace(self) -> float:
        return self.plan.stop_grace if self.plan else 30.0

    # Stopping.

    def queued(self) -> bool:
        """Say whether Kueue decides when pods of the job run."""
        return any(QUEUE_LABEL in labels_of(thing) for thing in self.objects().values() if is_main(thing))

    def stop(self, grace: float) -> Path | None:
        """Collect logs, and have no pod run; the job's objects stay, except those that cannot be suspended."""
        with self._collecting() as archive:
            mains = [thing for thing in self.objects().values() if is_main(thing)]
            for thing in mains:
                change = suspension(thing, True)
                if change is not None and not is_over(thing):
                    self.tell(f"suspending {key_of(thing)}")
                    self.api.merge(thing, change)
            removal = self._removal(grace)
            removal.remove([thing for thing in mains if suspension(thing, True) is None])
            removal.wait_for_ends()
        self._forget_looks()
        return archive.place

    def _collecting(self) -> AbstractContextManager[pod_log_archive.PodLogArchive]:
        """Write the logs of all pods to this machine's history, with what they print while the block ends them."""
        return pod_log_archive.collecting(self.api, self.pods(), self.plan, free_folder(self.job.history))

    # Taking down.

    def take_down(self, grace: float) -> tuple[Path | None, Failures]:
        """Collect logs, delete what the job consists of, and wait until all of it and its pods are gone. Raises LockLost."""
        failed: dict[str, DeployError] = {}
        with self._collecting() as archive:
            with nothing_begun():
                self.check_here()
            things = sorted(self.objects().values(), key=lambda thing: not is_main(thing))
            try:
                removal = self._removal(grace)
                removal.remove(things)
                removal.remove_pods()
            except DeployError as error:
                failed = {"objects": error}
            finally:
                self._forget_looks()
        return archive.place, failed

    def _removal(self, grace: float) -> Removal:
        return Removal(self.api, self.job.name, lambda text: self.tell(text), grace)

    def _forget_looks(self) -> None:
        for mirror in self._mirrors.values():
            mirror.close()
        if self._events is not None:
            self._events.close()
        self._mirrors, self._events = {}, None

    # Looking into it.

    def preflight(self, plan: Plan | None, hosts: Iterable[str], *, deep: bool = False) -> list[Finding]:
        """Check whether the cluster can take the job (None: any)."""
        return ClusterPreflight(self.api, self.places()[0], plan, None if plan is None else self._manifests(plan)).run()

    def logs(self, selection: LineSelection, last: int | None = None) -> Reader | None:
        """Return what reads the logs of the pods, None if there are none."""
        if not self.pods():
            return None
        return pod_logs.PodLogs(self.api, self.pods, self.plan, selection, last)

    def events(self) -> Events:
        """Return what reads what happened: here, and in the cluster."""
        return ClusterEvents(self.api, self.job)

    def enter(self, node: int | str, argv: Sequence[str]) -> int:
        """Run a command in the container of a running pod, with the terminal if there is one; return its exit code."""
        pod = self._running_pod(node)
        return PodSession(self.api, pod.name, pod.container).run(argv)

    def session(self, node: int) -> PodCommands:
        """Return the inside of the pod that is a node."""
        nodes = self.plan.nodes if self.plan else ()
        interpreter = next((one.container.python for one in nodes if one.index == node), "python3")
        return PodCommands(self.api, self._running_pod(node), interpreter)

    def _running_pod(self, node: int | str) -> Pod:
        found = next((one for one in self.observe().nodes if one.node == node), None)
        pod = next((pod for pod in self.pods() if found is not None and pod.name == found.container), None)
        if pod is None or pod.state != "running":
            kind = DeployError if found is None else NothingToEnter
            raise kind(f"node {node} has no running pod", f"`jobctl status {self.job.name}` shows its nodes")
        return pod

    def ports(self) -> AbstractContextManager[PodPorts]:
        """Return what connects to the ports of pods: those that are the job's nodes at that time."""
        return nullcontext(PodPorts(self.api, self._running_pod))

    def fetch(self, into: Path) -> dict[str, int]:
        """Write the logs of all pods below `into`; outputs stay where the pods' volumes are."""
        count, self._failures = pod_log_archive.collect(self.api, self.pods(), self.plan, into)
        return {"logs": count} if count else {}

    def close(self) -> None:
        """Let go of all connections."""
        self._forget_looks()
        self.api.close()
