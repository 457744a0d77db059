"""What is known of failures that frameworks, drivers and devices tell of in their own words."""

from __future__ import annotations

from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.spec.frameworks import FRAMEWORKS

# What is known of common failures; the rules of the spec go first. Code that cannot be loaded fails the same each time.
# Words of the NVIDIA driver and CUDA for hardware that is broken, of NCCL for a host that cannot speak to others.
DEFAULT_RULES = (
    *(rule for name in FRAMEWORKS for rule in framework(name).rules),
    # Nothing is wrong with code that cannot save: it fails at the same step each time until there is room again.
    Rule(r"No space left on device|Disk quota exceeded", None, "restart"),
    # Whoever took the port between its choice and its use: the next generation has another.
    Rule(r"(?i)\bEADDRINUSE\b|address already in use", None, "restart"),
    Rule(r"^(\[rank\d+\]: ?)?(ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError)\b", 1, "fail"),
    Rule(r"\bXid \([^)]*\): (48|62|63|64|74|79|92|94|95|119|120)\b", None, "exclude_host"),
    Rule(r"(?i)uncorrectable ECC error|double[- ]bit ECC", None, "exclude_host"),
    Rule(r"CUDA error: (unknown error|hardware stack error)|GPU has fallen off the bus", None, "exclude_host"),
    Rule(
        r"ncclSystemError|NCCL WARN.*(No such device|IBV_WC_RETRY_EXC_ERR|local catastrophic error)",
        None,
        "exclude_host",
    ),
)
