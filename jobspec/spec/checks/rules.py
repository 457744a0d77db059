"""The rules across fields, as rows of a table: a code, where it stands, when it holds, and what to do.

Rules need nothing but the spec (and its folder, for files); those about hosts and targets are in `targets`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os.path import expanduser, isdir, isfile, realpath
from pathlib import Path

from jobctl.jobspec.records import dataclass
from jobctl.jobspec.spec.checks.mounts import check_mounts
from jobctl.jobspec.spec.checks.torchrun_options import check_torchrun_options
from jobctl.jobspec.spec.checks.words import check_words
from jobctl.jobspec.spec.diagnostics import Diagnostic, Severity, Span
from jobctl.jobspec.spec.frameworks import FRAMEWORKS, KINDS, Traits, listed
from jobctl.jobspec.spec.hosts import is_ipv6
from jobctl.jobspec.spec.model import Spec
from jobctl.jobspec.spec.reading.env_files import missing_env_file
from jobctl.jobspec.spec.reading.partial import findings_of
from jobctl.jobspec.spec.reading.source import Source


@dataclass(frozen=True, slots=True)
class CheckRule:
    """One rule: `breaks` says whether a spec breaks it; the diagnostic points to the key or value at `path`."""

    code: str
    severity: Severity
    path: tuple[str, ...]
    breaks: Callable[[Spec], object]
    message: str
    hint: str | None = None
    at_key: bool = False


def _ways(spec: Spec) -> list[str]:
    said = {"script": spec.script, "module": spec.module, "command": (spec.command or ("",))[0]}
    return [name for name, what in said.items() if what]


def _several(spec: Spec) -> bool:
    return spec.nodes.max > 1


def is_elastic(spec: Spec) -> bool:
    """Say whether a job has a range of nodes. Looks at both ends itself: in a draft, either may be lost."""
    return spec.nodes.min != spec.nodes.max


def has_recovery_key(spec: Spec, key: str) -> bool:
    """Say whether the user has written a key of `recovery`: its default alone does not count."""
    return key in spec.recovery.model_fields_set


def _is(name: str) -> Callable[[Spec], bool]:
    return lambda spec: spec.framework == name


def _external(spec: Spec) -> tuple[str, ...]:
    return (spec.etcd.endpoints or ()) if spec.etcd else ()


def waits(spec: Spec) -> bool:
    """Say whether a job of paddle is to wait for nodes for a time of its own."""
    return spec.framework == "paddle" and spec.paddle is not None and spec.paddle.elastic_timeout is not None


def regroups(spec: Spec) -> bool:
    """Say whether paddle's launchers agree by themselves on who takes part."""
    legacy = spec.paddle is not None and spec.paddle.launcher == "legacy"
    return spec.etcd is not None and spec.mode != "ps" and not legacy


def _other_blocks(spec: Spec) -> list[str]:
    return [name for name in FRAMEWORKS if name != spec.framework and getattr(spec, name, None) is not None]


def operator_of(spec: Spec) -> str:
    """Return the operator of Kubernetes that the spec names."""
    return spec.kubernetes.operator if spec.kubernetes else "none"


def _runs_under(spec: Spec) -> tuple[str, ...]:
    """Return the operators that run the spec's framework."""
    return ("none", *FRAMEWORKS[spec.framework].operators)


_POLICIES = {
    "paddle-operator": ("Always", "Never", "OnFailure", "OnCompletion"),
    "kubeflow": ("All", "Running", "None"),
}

ERROR: Severity = "error"
WARNING: Severity = "warning"


def _limits(name: str, traits: Traits) -> Iterator[CheckRule]:
    """Yield the rules about what a framework cannot do; their codes: `codes`."""
    is_it = _is(name)
    if traits.kinds != KINDS:
        runs_on = listed(tuple(f"`{kind}`" for kind in traits.kinds), "and")
        broken = lambda s: is_it(s) and s.devices.kind not in traits.kinds  # noqa: E731
        yield CheckRule(f"{name}-device", ERROR, ("devices", "kind"), broken, f"{name} runs on {runs_on}")
    if traits.no_ps:
        message = f"{name} has no mode `ps`: {traits.no_ps}"
        yield CheckRule(
            f"{name}-ps", ERROR, ("mode",), lambda s: is_it(s) and s.mode == "ps", message, "use `mode: collective`"
        )
    if not traits.elastic:
        message = f"{name} cannot change the number of nodes while it runs"
        yield CheckRule(
            f"{name}-range", ERROR, ("nodes",), lambda s: is_it(s) and is_elastic(s), message, "give one number"
        )


# fmt: off
RULES: tuple[CheckRule, ...] = (
    # What runs.
    CheckRule(
        "nothing-to-run", ERROR, (), lambda s: not _ways(s), "nothing says what runs",
        "add `script: train.py`, `module:` or `command:`",
    ),
    CheckRule("two-commands", ERROR, ("module",), lambda s: {"script", "module"} <= set(_ways(s)),
         "`script` and `module` both say what runs", "keep one", at_key=True),
    CheckRule("two-commands", ERROR, ("command",), lambda s: "command" in _ways(s) and len(_ways(s)) > 1,
         "`command` and `script` or `module` both say what runs", "keep one", at_key=True),
    CheckRule("args-with-command", ERROR, ("args",), lambda s: s.args and s.command is not None,
         "`args` belong to `script` and `module`", "put them into `command`", at_key=True),
    CheckRule("per-without-command", ERROR, ("per",), lambda s: s.per == "node" and s.command is None,
         "`per` belongs to `command`", "leave it out", at_key=True),
    # Modes and frameworks.
    CheckRule("ps-missing", ERROR, ("mode",), lambda s: s.mode == "ps" and s.ps is None,
         "mode `ps` needs the block `ps`", "add `ps: {servers: 2, trainers: 4}`"),
    CheckRule("ps-without-mode", ERROR, ("ps",), lambda s: s.ps is not None and s.mode != "ps",
         "the block `ps` belongs to mode `ps`", "add `mode: ps`", at_key=True),
    CheckRule("collective-only-device", ERROR, ("devices", "kind"), lambda s: s.mode == "ps" and s.devices.kind in ("dcu", "npu"),
         "devices of kind `dcu` and `npu` allow mode `collective` only", "use `cpu`, `gpu` or `xpu`"),
    *(rule for name, traits in FRAMEWORKS.items() for rule in _limits(name, traits)),
    CheckRule("ps-range", ERROR, ("nodes",), lambda s: s.mode == "ps" and is_elastic(s),
         "mode `ps` needs a fixed number of nodes", "give one number"),
    CheckRule("paddle-range-needs-etcd", ERROR, ("nodes",), lambda s: _is("paddle")(s) and is_elastic(s) and s.etcd is None,
         "paddle needs etcd to change the number of nodes", "add `etcd: {managed: {}}`"),
    CheckRule("paddle-etcd-tls", ERROR, ("etcd", "tls"), lambda s: _is("paddle")(s) and s.etcd and s.etcd.tls,
         "paddle's launcher cannot use TLS with etcd", "use an etcd without TLS, or another framework", at_key=True),
    CheckRule("paddle-etcd-password", ERROR, ("etcd", "password"),
         lambda s: _is("paddle")(s) and s.etcd and (s.etcd.password or s.etcd.user),
         "paddle's launcher cannot authenticate to etcd", "use an etcd without users", at_key=True),
    CheckRule("gloo-outside-paddle", ERROR, ("ps", "gloo"), lambda s: s.ps and s.ps.gloo and not _is("paddle")(s),
         "`gloo` is an option of paddle", "leave it out", at_key=True),
    CheckRule("rejoin-without-ps", ERROR, ("torch", "rejoin"), lambda s: s.torch and s.torch.rejoin and s.mode != "ps",
         "only trainers with parameter servers can join again", "add `mode: ps`, or leave it out", at_key=True),
    CheckRule("per-node-with-ps", ERROR, ("per",),
         lambda s: s.mode == "ps" and s.ps and s.per == "node" and max(s.ps.servers, s.ps.trainers) > s.nodes.max,
         "`per: node` runs one process of a role on a node, which are fewer than `ps` says", "leave `per` out"),
    CheckRule("bad-value", ERROR, ("ps", "gloo"), lambda s: s.ps and s.ps.gloo > 2, "`ps.gloo`: expected 0, 1 or 2"),
    CheckRule("native-recovery-device", ERROR, ("mindspore", "recovery"),
         lambda s: s.mindspore and s.mindspore.recovery == "native" and s.devices.kind != "gpu",
         "mindspore's own recovery works on `gpu` only", "use `recovery: restart`"),
    CheckRule("native-recovery-msrun", ERROR, ("mindspore", "launcher"),
         lambda s: s.mindspore and s.mindspore.recovery == "native" and s.mindspore.launcher == "msrun",
         "msrun never ends where mindspore's own recovery is switched on", "leave `launcher` out, or use `recovery: restart`"),
    CheckRule("native-recovery-node", ERROR, ("mindspore", "recovery"),
         lambda s: s.mindspore and s.mindspore.recovery == "native" and s.per == "node",
         "with `per: node` jobctl starts no worker, so it cannot start one again alone", "use `recovery: restart`"),
    # Sizes and devices.
    CheckRule("min-above-max", ERROR, ("nodes", "min"), lambda s: s.nodes.min > s.nodes.max, "the minimum of nodes is above the maximum"),
    CheckRule("count-and-ids", ERROR, ("devices", "ids"), lambda s: s.devices.ids is not None and s.devices.count is not None,
         "`count` and `ids` both say how many devices", "keep one", at_key=True),
    CheckRule("cpu-ids", ERROR, ("devices", "ids"), lambda s: s.devices.kind == "cpu" and s.devices.ids is not None,
         "`cpu` has no ids", "write `devices: cpu:4`", at_key=True),
    # Recovery.
    CheckRule("shrink-fixed", ERROR, ("recovery", "on_host_loss"),
         lambda s: s.recovery.on_host_loss == "shrink" and not is_elastic(s),
         "a job of a fixed number of nodes cannot shrink", 'give a range of nodes, e.g. `nodes: "2:4"`'),
    CheckRule("replace-unshared", ERROR, ("recovery", "on_host_loss"),
         lambda s: s.recovery.on_host_loss == "replace" and s.checkpoint and not s.checkpoint.shared,
         "a node whose checkpoint only its own host has cannot move", "share the checkpoint, or use `wait`"),
    CheckRule("elastic-unshared", WARNING, ("checkpoint", "shared"),
         lambda s: is_elastic(s) and s.checkpoint and not s.checkpoint.shared,
         "when nodes leave or join, ranks change hosts, and what they saved stays behind",
         "share the checkpoint, or make sure that every host has what any rank loads"),
    CheckRule("no-checkpoint", WARNING, ("nodes",),
         lambda s: _several(s) and s.recovery.max_restarts > 0 and s.checkpoint is None,
         "several nodes that may restart, and no `checkpoint`: each restart begins from zero",
         "add `checkpoint: /path/that/all/hosts/see`"),
    CheckRule("one-checkpoint", WARNING, ("checkpoint", "keep"),
         lambda s: _is("mindspore")(s) and s.checkpoint and s.checkpoint.keep < 2,
         "a crash while the only checkpoint is saved loses everything", "use `keep: 2`"),
    CheckRule("relative-checkpoint", ERROR, ("checkpoint", "dir"),
         lambda s: s.checkpoint and not s.checkpoint.dir.startswith("/"),
         "`checkpoint` must be an absolute path: it is the same on every host", "write `/path/to/checkpoints`"),
    # Operators of Kubernetes; what only matters on that target: kubernetes.py.
    CheckRule("operator-framework", ERROR, ("kubernetes", "operator"), lambda s: operator_of(s) not in _runs_under(s),
         "this operator does not run jobs of this framework", "use `operator: none`, which runs all of them"),
    CheckRule("operator-mode", ERROR, ("kubernetes", "operator"),
         lambda s: s.mode == "ps" and operator_of(s) in ("kubeflow", "trainer"),
         "this operator does not run parameter servers",
         "use `operator: none`; for paddle also `paddle-operator`"),
    CheckRule("operator-policy", ERROR, ("kubernetes", "clean_pod_policy"),
         lambda s: operator_of(s) in _POLICIES and s.kubernetes and s.kubernetes.clean_pod_policy not in (None, *_POLICIES[operator_of(s)]),
         "the operator does not know this policy, and would take it for none",
         "paddle-operator knows `Always`, `Never`, `OnFailure` and `OnCompletion`, kubeflow `All`, `Running` and `None`"),
    CheckRule("operator-unused", ERROR, ("kubernetes", "clean_pod_policy"),
         lambda s: s.kubernetes and s.kubernetes.clean_pod_policy is not None and operator_of(s) not in _POLICIES,
         "only paddle-operator and kubeflow have a policy for pods that have ended", "leave it out", at_key=True),
    CheckRule("operator-unused", ERROR, ("kubernetes", "intranet"),
         lambda s: s.kubernetes and s.kubernetes.intranet is not None and operator_of(s) != "paddle-operator",
         "`intranet` is an option of paddle-operator", "leave it out", at_key=True),
    CheckRule("operator-policy", ERROR, ("kubernetes", "intranet"),
         lambda s: s.kubernetes and s.kubernetes.intranet not in (None, "PodIP", "Service", "Host"),
         "paddle-operator does not know this way, and would take it for `PodIP`", "it knows `PodIP`, `Service` and `Host`"),
    CheckRule("operator-service", WARNING, ("kubernetes", "intranet"),
         lambda s: s.kubernetes and s.kubernetes.intranet == "Service",
         "with `Service` Paddle 3 hangs in mode `collective`, and servers of operator 0.3.5 do not find themselves",
         "use `PodIP`"),
    # etcd.
    CheckRule("etcd-either", ERROR, ("etcd", "managed"), lambda s: s.etcd and bool(s.etcd.endpoints) == (s.etcd.managed is not None),
         "`etcd` needs either `endpoints` or `managed`", "endpoints of one that runs, or `managed: {}`"),
    CheckRule("etcd-user", ERROR, ("etcd", "password"), lambda s: s.etcd and not s.etcd.managed and s.etcd.password is not None and s.etcd.user is None,
         "`etcd.password` needs `etcd.user`", "say whose: `user: NAME`", at_key=True),
    CheckRule("etcd-user", ERROR, ("etcd", "user"), lambda s: s.etcd and not s.etcd.managed and s.etcd.user is not None and s.etcd.password is None,
         "etcd lets no user in without a password", "name the secret that holds it: `password: NAME`", at_key=True),
    CheckRule("etcd-managed", ERROR, ("etcd", "tls"), lambda s: s.etcd and s.etcd.managed and s.etcd.tls,
         "a managed etcd has no TLS", "leave it out, or name an etcd that has: `endpoints`", at_key=True),
    CheckRule("etcd-managed", ERROR, ("etcd", "user"), lambda s: s.etcd and s.etcd.managed and (s.etcd.user or s.etcd.password),
         "a managed etcd has no users", "leave it out, with `password`, or name an etcd that has: `endpoints`", at_key=True),
    CheckRule("etcd-replicas", ERROR, ("etcd", "managed", "replicas"),
         lambda s: s.etcd and s.etcd.managed and s.etcd.managed.replicas not in (1, 3),
         "a managed etcd has 1 or 3 members"),
    CheckRule("out-of-range", ERROR, ("etcd", "managed", "port"), lambda s: s.etcd and s.etcd.managed and s.etcd.managed.port == 65535,
         "a managed etcd also takes the next port, and there is none after 65535"),
    CheckRule("paddle-one-endpoint", WARNING, ("etcd", "endpoints"), lambda s: _is("paddle")(s) and len(_external(s)) > 1,
         "paddle's launcher speaks to one endpoint only: the first that answers when it starts"),
    CheckRule("paddle-etcd-address", ERROR, ("etcd", "endpoints"),
         lambda s: _is("paddle")(s) and regroups(s) and any(one.startswith("[") for one in _external(s)),
         "paddle's launcher takes no IPv6 address", "give the name or the IPv4 address of the etcd"),
    CheckRule("long-elastic-timeout", WARNING, ("paddle", "elastic_timeout"),
         lambda s: s.paddle and (s.paddle.elastic_timeout or 0) > 120,
         "with an elastic timeout above 2 minutes a change of nodes takes that long", "30s is paddle's default"),
    CheckRule("unused-elastic-timeout", WARNING, ("paddle", "elastic_timeout"),
         lambda s: waits(s) and not regroups(s) and not (is_elastic(s) and s.etcd is None),
         "nobody waits for other nodes here: alone paddle's launchers with etcd do",
         "leave it out; it takes `etcd`, mode `collective` and paddle's own launcher", at_key=True),
    CheckRule("fixed-elastic-timeout", WARNING, ("paddle", "elastic_timeout"),
         lambda s: waits(s) and regroups(s) and not is_elastic(s),
         "paddle does not go on with fewer nodes than this fixed number, and waits ten times as long for them",
         'give a range of nodes, e.g. `nodes: "2:4"`, or leave it out', at_key=True),
)
# fmt: on


def check_spec(spec: Spec, source: Source, directory: Path) -> list[Diagnostic]:
    """Return what is wrong between the fields of a spec (or a draft of one), and which of its files are not there."""
    found = [*apply(RULES, spec, source)]
    here = (_blocks, _endpoints, _passwords, _reserved, _secrets, _outputs)
    for check in (*here, check_mounts, check_torchrun_options, check_words):
        found += findings_of(partial(check, spec, source))
    for files in (_files, _notify_files):
        found += findings_of(partial(files, spec, source, directory))
    return found


def apply(rules: Sequence[CheckRule], spec: Spec, source: Source) -> list[Diagnostic]:
    """Return what `spec` breaks of a table of rules."""
    return [diagnostic for rule in rules for diagnostic in findings_of(partial(_apply, rule, spec, source))]


def _apply(rule: CheckRule, spec: Spec, source: Source) -> list[Diagnostic]:
    return [_diagnostic(rule, source)] if rule.breaks(spec) else []


def _diagnostic(rule: CheckRule, source: Source) -> Diagnostic:
    span = source.key_span(rule.path) if rule.at_key else source.value_span(rule.path)
    return Diagnostic(rule.severity, rule.code, rule.message, span, rule.hint)


def _blocks(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    for name in _other_blocks(spec):
        message = f"the block `{name}` is for framework `{name}`, not `{spec.framework}`"
        yield Diagnostic("error", "other-framework", message, source.key_span((name,)), "leave it out")


_ENDPOINT = re.compile(r"(?:[\w.-]+|\[[^\[\]\s]+\]):([0-9]{1,5})")


def _endpoints(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    for number, endpoint in enumerate(_external(spec)):
        host, _, port = endpoint.rpartition(":")
        match = _ENDPOINT.fullmatch(endpoint)
        if is_ipv6(endpoint) or is_ipv6(host):
            span = source.value_span(("etcd", "endpoints", number))
            message = f"`{endpoint}` is an IPv6 address without brackets"
            whole = f"[{host}]:{port}" if is_ipv6(host) else f"[{endpoint}]:2379"
            yield Diagnostic("error", "bad-endpoint", message, span, f"write `{whole}`")
        elif match is None or not 1 <= int(match[1]) <= 65535:
            span = source.value_span(("etcd", "endpoints", number))
            message = f"`{endpoint}` is not an endpoint of etcd"
            hint = (
                "write each as an item: `[a:2379, b:2379]`"
                if "," in endpoint
                else "write `host:2379`, without a scheme"
            )
            yield Diagnostic("error", "bad-endpoint", message, span, hint)


def _passwords(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    password = spec.etcd.password if spec.etcd else None
    if password is not None and password not in {secret.name for secret in spec.secrets}:
        message = "`etcd.password` is the name of a secret, and there is none such"
        yield Diagnostic(
            "error", "unknown-secret", message, source.value_span(("etcd", "password")), "add it to `secrets`"
        )


# Those that frameworks decide: frameworks/reserved_env.py.
def _reserved(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    for name in spec.env:
        if name.startswith("JOBCTL_"):
            message = f"processes are told `{name}` by the launcher: this value never arrives"
            where = source.key_span(("env", name))
            yield Diagnostic("warning", "reserved-variable", message, where, "leave it out")


def _secrets(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    for secret in spec.secrets:
        if secret.name in spec.env:
            message = f"`{secret.name}` is a variable of `env` and a secret"
            yield Diagnostic(
                "error", "secret-in-env", message, source.key_span(("env", secret.name)), "keep the secret"
            )


def _outputs(spec: Spec, source: Source) -> Iterator[Diagnostic]:
    for number, path in enumerate(spec.outputs):
        if "*" in path or "?" in path:
            message = f"`{path}` is one path, and no pattern: no other file is kept or fetched"
            where = source.value_span(("outputs", number))
            yield Diagnostic(
                "warning", "outputs-not-kept", message, where, "name a folder, such as `runs/`, and write there"
            )


# Files: those that are missing are warnings, they may come later or lie elsewhere. `isfile` and `expanduser` of os.path fail for no
# name, however long it is and whose home it is in; those of Path do.


_ALONE = "`script` is the path of a Python script alone: its arguments belong into `args`"


def _files(spec: Spec, source: Source, directory: Path) -> Iterator[Diagnostic]:
    base = directory / spec.code.source if spec.code else directory
    if spec.code is not None and not isdir(base):
        yield _no_file("code", f"there is no directory `{spec.code.source}`", source.value_span(("code", "source")))
    elif spec.code is not None and realpath(base) == "/":
        span = source.value_span(("code", "source"))
        message = f"`{spec.code.source}` is the root of the file system, and every host would get all of it"
        yield Diagnostic("error", "code-is-root", message, span, "name the folder of the training script")
    elif spec.script and not spec.script.startswith("/") and not isfile(base / spec.script):
        span = source.value_span(("script",))
        yield _no_file("script", f"there is no file `{spec.script}`", span, _ALONE if " " in spec.script else None)
    for number, name in enumerate(spec.env_file):
        why = missing_env_file(directory, name)
        if why is not None:
            where = ("env_file", number) if source.has(("env_file", number)) else ("env_file",)
            yield _no_file("env_file", why, source.value_span(where))
    for secret in spec.secrets:
        if secret.file is not None and not isfile(directory / expanduser(secret.file)):
            span = source.value_span(("secrets", secret.name, "file"))
            yield _no_file("secrets", f"there is no file `{secret.file}`", span)


def _notify_files(spec: Spec, source: Source, directory: Path) -> Iterator[Diagnostic]:
    for number, one in enumerate(spec.notify or ()):
        smtp = one.email.smtp if one.email else None
        secrets = {("webhook",): one.webhook, ("email", "smtp", "password"): smtp.password if smtp else None}
        for where, secret in secrets.items():
            if secret is not None and secret.file is not None and not isfile(directory / expanduser(secret.file)):
                span = source.value_span(("notify", number, *where, "file"))
                yield _no_file("notify", f"there is no file `{secret.file}`", span)


def _no_file(what: str, message: str, span: Span, hint: str | None = None) -> Diagnostic:
    remedy = hint or f"paths of `{what}` are relative to the spec"
    return Diagnostic("warning", "file-not-found", message, span, remedy)
