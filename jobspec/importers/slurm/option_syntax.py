"""Options as `sbatch` and `srun` take them: which are short for which, and which take no value."""

from __future__ import annotations

from collections.abc import Sequence

SHORT = {
    "-A": "--account", "-a": "--array", "-B": "--extra-node-info", "-b": "--begin", "-C": "--constraint",
    "-c": "--cpus-per-task", "-D": "--chdir", "-d": "--dependency", "-e": "--error", "-F": "--nodefile",
    "-G": "--gpus", "-H": "--hold", "-I": "--immediate", "-i": "--input", "-J": "--job-name", "-K": "--kill-on-bad-exit",
    "-k": "--no-kill", "-L": "--licenses", "-l": "--label", "-M": "--clusters", "-m": "--distribution", "-N": "--nodes",
    "-n": "--ntasks", "-O": "--overcommit", "-o": "--output", "-p": "--partition", "-Q": "--quiet", "-q": "--qos",
    "-r": "--relative", "-S": "--core-spec", "-s": "--oversubscribe", "-t": "--time", "-u": "--unbuffered",
    "-v": "--verbose", "-W": "--wait", "-w": "--nodelist", "-X": "--disable-status", "-x": "--exclude",
}  # fmt: skip
# Further names of options, which no manual has.
_ALSO = {"--tasks-per-node": "--ntasks-per-node", "--ntasks-per-tres": "--ntasks-per-gpu", "--cluster": "--clusters"}
# Options whose value, if they take one at all, stands behind `=`.
_NO_WORD = {
    "--exclusive", "--requeue", "--no-requeue", "--contiguous", "--hold", "--immediate", "--kill-on-bad-exit",
    "--no-kill", "--label", "--overcommit", "--overlap", "--oversubscribe", "--parsable", "--quiet", "--reboot",
    "--spread-job", "--test-only", "--unbuffered", "--use-min-nodes", "--verbose", "--disable-status", "--pty",
    "--nice", "--get-user-env", "--propagate", "--ignore-pbs", "--exact", "--whole", "--no-container-mount-home",
    "--container-mount-home", "--container-remap-root", "--no-container-remap-root", "--container-writable",
    "--container-readonly", "--no-container-entrypoint", "--container-entrypoint", "--preserve-env", "--multi-prog",
    "--stepmgr", "--resv-ports",
}  # fmt: skip
# Further options of `sbatch`, of 22.05 to 24.11: man sbatch. Those of plugins (pyxis: `--container-…`) are any site's own.
_LONG = """
--acctg-freq --batch --bb --bbf --cluster-constraint --clusters --comment --container --container-id --context
--cores-per-socket --cpu-freq --cpus-per-gpu --deadline --delay-boot --export --export-file --extra --gid --gpu-bind --gpu-freq --gpus-per-node
--gpus-per-socket --gpus-per-task --gres --gres-flags --hint --kill-on-invalid-dep --mail-type --mail-user --mcs-label
--mem --mem-bind --mem-per-cpu --mem-per-gpu --mincpus --network --ntasks-per-core --ntasks-per-gpu --ntasks-per-node
--ntasks-per-socket --oom-kill-step --open-mode --power --prefer --priority --profile --reservation --segment --signal
--sockets-per-node --switches --thread-spec --threads-per-core --time-min --tmp --tres-bind --tres-per-task --uid
--wait-all-nodes --wckey --wrap --help --usage --version
"""
_OF_SRUN = {"--kill-on-bad-exit", "--label", "--unbuffered", "--relative", "--disable-status", "--multi-prog", "--pty",
            "--overlap", "--exact", "--whole", "--preserve-env", "--immediate"}  # fmt: skip
SBATCH = frozenset((*_LONG.split(), *SHORT.values(), *_NO_WORD)) - _OF_SRUN


def is_known(name: str) -> bool:
    """Say whether `sbatch` takes an option, or a plugin of containers may."""
    return name in SBATCH or "container" in name


_SBATCH_ONLY = {"--wait"}  # a flag of sbatch, a number of seconds for srun


def split(words: Sequence[str], *, batch: bool = False) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options in order, by their long names (empty without a value), and the words after them."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        word = words[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = _ALSO.get(name, name)
        else:
            name, value = SHORT.get(word[:2], word[:2]), word[2:].removeprefix("=")
            equals = value
        alone = name in _NO_WORD or (batch and name in _SBATCH_ONLY)
        if alone and not word.startswith("--") and value:
            words = [*words[:at], f"-{value}", *words[at:]]  # `-ul`: more flags in one word
            value = ""
        elif not equals and not alone and at < len(words):
            value = words[at]
            at += 1
        found.append((name, value))
    return found, list(words[at:])


def exported(value: str) -> dict[str, str]:
    """Return the variables that `--export` sets; those that it only names have the values of the environment."""
    return {name: text for name, equals, text in (one.partition("=") for one in value.split(",")) if equals}
