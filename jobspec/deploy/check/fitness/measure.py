"""The fitness check of hosts: starts a probe on each, measures in rounds, and judges.

Hosts that are different machines are measured side by side. Hosts that are one machine (several names, or test hosts in
network namespaces) share its cores, and are measured in turn.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jobctl.jobspec.deploy.check.fitness.effort import EFFORTS
from jobctl.jobspec.deploy.check.fitness.findings import findings_of, wrong_result
from jobctl.jobspec.deploy.check.fitness.framework_sum import FrameworkSum, framework_message
from jobctl.jobspec.deploy.check.fitness.host_values import MEASURE_TIMEOUT, HostValues, MeasureTask, measure_host
from jobctl.jobspec.deploy.check.fitness.inventory import compare
from jobctl.jobspec.deploy.check.fitness.network import HostNetwork, link_findings, sum_findings
from jobctl.jobspec.deploy.check.fitness.rounds import Doubts, measure_in_rounds
from jobctl.jobspec.deploy.check.fitness.samples import NOISE, SharedCores
from jobctl.jobspec.deploy.check.fitness.session import ProbeSession, start_probe
from jobctl.jobspec.deploy.check.fitness.verdicts import (
    Judgement,
    PastValues,
    Place,
    Values,
    judge_all,
)
from jobctl.jobspec.deploy.check.survey import CheckedHost, Survey, of_error
from jobctl.jobspec.deploy.host.devices_in_use import jobs_of
from jobctl.jobspec.deploy.host.scripts import SCRIPTS
from jobctl.jobspec.deploy.images import images
from jobctl.jobspec.deploy.images.copy import ImageSources
from jobctl.jobspec.deploy.images.spread import ImageSpread
from jobctl.jobspec.deploy.model.errors import DeployError, HostError
from jobctl.jobspec.deploy.model.finding import Finding
from jobctl.jobspec.deploy.model.untrusted import Json
from jobctl.jobspec.deploy.store.speeds import Speed, Speeds
from jobctl.jobspec.deploy.transport.fanout import fan_out
from jobctl.jobspec.frameworks.base import Programs, framework
from jobctl.jobspec.plan.types import Plan
from jobctl.jobspec.spec.fitness_mode import FitnessMode


def measured(survey: Survey, findings: Sequence[Finding], mode: FitnessMode, state: Path) -> list[Finding]:
    """Return a preflight's findings with those of a fitness check, by host, of all hosts that are fit so far."""
    bad = {finding.host for finding in findings if finding.verdict == "error"}
    fit = [s for s in survey.seats if s.facts and s.name not in bad]
    # What has no node has no container of the job, and another Python would differ. A spare is measured when it gets one.
    without = [s for s in fit if survey.plan is not None and not s.nodes]
    left_out = [Finding(s.name, "compute", "skipped", "no node of the job is there: not measured") for s in without]
    able = [s for s in fit if s not in without]
    every = [*findings, *left_out, *FitnessCheck(survey.plan, able, mode, state, survey.images).run()]
    order = {seat.name: number for number, seat in enumerate(survey.seats)}
    return sorted(every, key=lambda finding: order.get(finding.host, -1))


class FitnessCheck:
    """One fitness check of hosts that the preflight found nothing wrong with.

    `state` is where their past is kept, `sources` have images for them; default: these hosts and this machine.
    """

    def __init__(
        self,
        plan: Plan | None,
        seats: Sequence[CheckedHost],
        mode: FitnessMode,
        state: Path,
        sources: ImageSources | None = None,
    ) -> None:
        self.plan, self.mode, self.effort = plan, mode, EFFORTS[mode]
        self.seats = {seat.name: seat for seat in seats}
        others = {node.host.name: node.container.image for node in plan.nodes} if plan else {}
        self.speeds = Speeds(
            state / "fitness", {name: f"{others.get(name, 'no image')} {mode}" for name in {**self.seats, **others}}
        )
        self.images = sources or ImageSources([seat.host_job for seat in seats])
        self.token = secrets.token_hex(4)
        self.sessions: dict[str, ProbeSession] = {}
        self.machines: list[list[str]] = []
        self._cores: dict[tuple[int, str], SharedCores] = {}  # by machine and metric
        self._found: dict[tuple[str, str], Finding] = {}  # by host and check: what is wrong, beside what is slow

    def run(self) -> list[Finding]:
        """Measure all hosts; return the findings."""
        past = self.speeds.past()
        try:
            self._start()
            inventory = self._compare()
            rounds, again = self.effort.rounds, self.effort.again
            values = dict(measure_in_rounds(self.machines, self._round, past, rounds, again, self._is_steady))
            values["link to other hosts"] = self._network()
        finally:
            fan_out(self.sessions.values(), ProbeSession.close, max(1, len(self.sessions)))
        judgements = self._judge(values, past)
        self.speeds.keep(Speed(one.place[0], one.metric.name, one.place[1], one.value) for one in _good(judgements))
        slow = [one for one in findings_of(judgements) if (one.host, one.check) not in self._found]
        return [*inventory, *self._found.values(), *slow]

    def _judge(self, values: Values, past: PastValues) -> list[Judgement]:
        """Judge the hosts that were measured; for hosts of the job that were not, their last values count."""
        merged = {}
        for metric, found in values.items():
            here = {host for host, _ in found}
            last = {place: old[-1] for place, old in past.get(metric, {}).items() if place[0] not in here and old}
            merged[metric] = {**last, **found}
        return [one for one in judge_all(merged, past) if one.place in values[one.metric.name]]

    def _start(self) -> None:
        """Start the probes, except on hosts where jobs run: both would be slowed."""
        self._hand_on()
        started = fan_out(self.seats, self._session, max(1, len(self.seats)))
        for host, error in started.failed.items():
            self._failed(host, "compute", error)
        self.sessions = {host: session for host, session in started.done.items() if session is not None}

    def _hand_on(self) -> None:
        """Let hosts hand on the job's image, before each of those that lack it gets it by itself."""
        lacking = [name for name, seat in self.seats.items() if seat.nodes and seat.image is None]
        container = self.plan.nodes[0].container if self.plan else None
        if container is not None and container.pull != "always":
            jobs = [seat.host_job for seat in self.seats.values()]
            ImageSpread(jobs, self.images, container.python).bring(container.image, lacking, container.pull)

    def _session(self, host: str) -> ProbeSession | None:
        seat = self.seats[host]
        running = sorted({job["job"] for job in jobs_of(seat.host_job)}) if seat.engine is not None else []
        if running:
            text = f"{', '.join(f'job `{job}`' for job in running)} runs there: nothing was measured"
            self._note(Finding(host, "compute", "skipped", text))
            return None
        if seat.nodes and seat.image is None:
            self._bring_image(seat)
        job, number = self.plan.job if self.plan else "", list(self.seats).index(host)
        return start_probe(self.plan, seat, f"jobctl-{job}-look-{self.token}-{number}", self.token)

    def _bring_image(self, seat: CheckedHost) -> None:
        """Have the job's image on a host. Raises HostError."""
        container = seat.nodes[0].container
        built = self.plan.build if self.plan else None
        if built is not None and built.image == container.image and not self.images.have(container.image):
            message = f"the image `{container.image}` is not built yet"
            raise HostError(seat.name, "image-missing", message, "`jobctl prepare --hosts …` builds it")
        images.ensure(seat.host_job, container, self.images)

    def _note(self, finding: Finding) -> None:
        """Keep a finding; of several about one check of a host the first one counts, errors most."""
        known = self._found.get((finding.host, finding.check))
        if known is None or (finding.verdict == "error" and known.verdict != "error"):
            self._found[finding.host, finding.check] = finding

    def _failed(self, host: str, check: str, error: DeployError) -> None:
        """Note why something cannot be measured; a host whose probe has ended takes part no more."""
        self._note(of_error(host, check, error))
        session = self.sessions.get(host)
        if session is not None and session.broken:
            self.sessions.pop(host).close()

    def _compare(self) -> list[Finding]:
        """Compare what the hosts are, and find out which of them share a machine."""
        said = fan_out(self.sessions, self._inventory, max(1, len(self.sessions)))
        for host, error in said.failed.items():
            self._failed(host, "inventory", error)
        machines: dict[str, list[str]] = {}
        for host in self.sessions:
            facts = self.seats[host].facts
            machines.setdefault((facts.values.get("boot") if facts else "") or f"host {host}", []).append(host)
        self.machines = list(machines.values())
        return list(compare(said.done))

    def _inventory(self, host: str) -> Json:
        seat = self.seats[host]
        where = (
            {"interface": seat.nodes[0].launch.interface, "address": seat.nodes[0].host.address} if seat.nodes else {}
        )
        said = self.sessions[host].ask("inventory", MEASURE_TIMEOUT, kind=_kind(seat), **where)
        log = seat.host_job.transport.run(SCRIPTS.argv("driver_errors")).out  # no container sees it
        return {**said, "log": log.decode("utf-8", "replace")}

    def _round(self, groups: Sequence[Sequence[str]], doubts: Doubts | None) -> Values:
        """Measure groups of hosts side by side, and the hosts of a group in turn; all of them, or what is doubtful."""
        found: dict[str, dict[Place, float]] = {}

        def measure(group: tuple[str, ...]) -> dict[str, HostValues]:
            there = [(host, self.sessions[host]) for host in group if host in self.sessions]
            return {host: measure_host(session, self._task(host, doubts)) for host, session in there}

        for measured in fan_out(map(tuple, groups), measure, max(1, len(groups))).done.values():
            for metric, speeds in self._weigh(measured).items():
                found.setdefault(metric, {}).update({(host, ""): speed for host, speed in speeds.items()})
            for host, values in measured.items():
                self._take(host, values)
                for metric, by_device in values.values.items():
                    found.setdefault(metric, {}).update({(host, device): v for device, v in by_device.items()})
        return found

    def _weigh(self, measured: Mapping[str, HostValues]) -> dict[str, dict[str, float]]:
        """Return speeds by metric and host, of the samples of hosts that were measured in turn.

        They are one machine, whose other hosts are weighed again, or one host alone.
        """
        weighed = {}
        for metric in dict.fromkeys(name for one in measured.values() for name in one.samples):
            samples = {host: one.samples[metric] for host, one in measured.items() if metric in one.samples}
            number = next(number for number, hosts in enumerate(self.machines) if next(iter(samples)) in hosts)
            speeds = {host: sample.speed for host, sample in samples.items()}
            if len(self.machines[number]) > 1:
                speeds = self._cores.setdefault((number, metric), SharedCores(NOISE[metric])).speeds(samples)
            weighed[metric] = speeds
        return weighed

    def _is_steady(self, metric: str, host: str) -> bool:
        number = next(number for number, hosts in enumerate(self.machines) if host in hosts)
        cores = self._cores.get((number, metric))
        return cores is not None and cores.steady(host)

    def _network(self) -> dict[Place, float]:
        """Measure the links between hosts, and have all hosts add up numbers; return the speed of each host's best link."""
        if len(self.sessions) < 2:
            return {}
        addresses = {host: self.seats[host].host_job.host.address for host in self.sessions}
        network = HostNetwork(self.sessions, addresses, self.machines, self.effort, self.token)
        speeds = network.measure()
        for host, error in network.failed.items():
            found = of_error(host, "link", error)
            # Without a job, nobody has said that the hosts know each other by these names.
            self._note(found if self.plan else replace(found, verdict="skipped", code=None))
        for finding in link_findings(network, speeds):
            self._note(finding)
        self._sum(network)
        return {(host, ""): one.speed for host, one in speeds.items()}

    def _sum(self, network: HostNetwork) -> None:
        if len(network.able) < 2:
            return
        try:
            said = network.add_up()
        except HostError as error:
            found = of_error(error.host, "collective", error)
            # Where each waits for the next, the one that tells of it first need not be the one to blame.
            broken = network.sessions[error.host].broken
            self._note(found if broken else replace(found, verdict="skipped", code=None))
            return
        own = self._framework_sum(network.able)
        for finding in own.findings() if own is not None else ():
            self._note(finding)
        for finding in sum_findings(said):
            if own is not None and finding.verdict == "ok":
                finding = replace(finding, message=framework_message(finding, own))
            self._note(finding)

    def _framework_sum(self, sessions: Mapping[str, ProbeSession]) -> FrameworkSum | None:
        """Return what adds up by the framework's own collectives; None where there is none, or its import takes too long."""
        if self.plan is None or self.plan.mode != "collective" or any(not self.seats[h].nodes for h in sessions):
            return None
        program = framework(self.plan.framework).programs.sum
        kinds = {_kind(self.seats[host]) for host in sessions}
        if program is None or (kinds == {"cpu"} and self.mode == "quick"):
            return None
        return FrameworkSum(sessions, self.seats, program)

    def _take(self, host: str, measured: HostValues) -> None:
        for check, text in measured.wrong:
            self._note(wrong_result(host, check, text))
        for check, error in measured.failed:
            self._failed(host, check, error)
        for check, text in measured.skipped:
            self._note(Finding(host, check, "skipped", text))

    def _task(self, host: str, doubts: Doubts | None) -> MeasureTask:
        """Return what is measured on a host in a round: all in the first one, then what `doubts` say."""
        seat, kind = self.seats[host], _kind(self.seats[host])
        shared = any(host in hosts and len(hosts) > 1 for hosts in self.machines)
        # Frameworks use all cores by threads that wait for each other: where hosts share cores, that says nothing.
        measured = kind != "cpu" or (self.mode == "full" and not shared and bool(seat.nodes))
        devices = kind if measured else None
        metrics = doubts[host] if doubts else None
        return MeasureTask(
            self.effort.turn if shared else self.effort,
            shared,
            self._storage(seat),
            devices,
            self._program(),
            self.token,
            metrics,
        )

    def _program(self) -> str:
        """Return the name of the program that measures devices."""
        return framework(self.plan.framework).programs.devices if self.plan else Programs().devices

    def _storage(self, seat: CheckedHost) -> str | None:
        """Return the directory whose speed matters: that of checkpoints, or without a job that of work directories."""
        if self.plan is None:
            return str(seat.host_job.work.parent.parent)
        return self.plan.checkpoint.dir if self.plan.checkpoint and seat.nodes else None


def _kind(seat: CheckedHost) -> str:
    return seat.nodes[0].container.devices.kind if seat.nodes else "cpu"


def _good(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return those that say how fast a host is when it is well. One that nothing else explains becomes usual in time."""
    return [one for one in judgements if one.verdict == "ok" or (one.verdict, one.against) == ("warning", "past")]
