"""What is known of failures that frameworks, drivers and devices tell of in their own words."""

from __future__ import annotations

from collections.abc import Mapping

from jobctl.jobspec.frameworks.base import framework
from jobctl.jobspec.plan.recovery import Rule
from jobctl.jobspec.spec.frameworks import FRAMEWORKS

# What NVIDIA's driver says of a device that is broken, or needs a reset: https://docs.nvidia.com/deploy/xid-errors
XIDS: Mapping[int, str] = {
    48: "an error of its memory that ECC could not correct",
    62: "its controller has halted",
    63: "it remaps rows of its memory",
    64: "rows of its memory could not be remapped",
    74: "an error of NVLink",
    79: "it has fallen off the bus",
    92: "many errors of its memory that ECC has corrected",
    94: "an error of its memory that ECC has contained",
    95: "an error of its memory that ECC could not contain",
    119: "its system processor does not answer",
    120: "an error of its system processor",
}
# What is known of common failures; the rules of the spec go first. Code that cannot be loaded fails the same each time.
# Words of the NVIDIA driver and CUDA for hardware that is broken, of NCCL for a host that cannot speak to others.
DEFAULT_RULES = (
    *(rule for name in FRAMEWORKS for rule in framework(name).rules),
    # Nothing is wrong with code that cannot save: it fails at the same step each time until there is room again.
    Rule(r"No space left on device|Disk quota exceeded", None, "restart"),
    # Nor with code that meets a sick server of files, in words of NFS, FUSE and Lustre (EIO, ESTALE, EREMOTEIO, ENOTCONN, ESHUTDOWN).
    # The last two are also said of sockets, which have no path.
    Rule(
        r"Input/output error|Remote I/O error|Stale (NFS )?file handle"
        r"|Transport endpoint is not connected: b?['\"]|['\"/]\S*: Transport endpoint is not connected"
        r"|transport endpoint shutdown: b?['\"]|['\"/]\S*: Cannot send after transport endpoint shutdown",
        None,
        "restart",
    ),
    # Whoever took the port between its choice and its use: the next generation has another.
    Rule(r"(?i)\bEADDRINUSE\b|address already in use", None, "restart"),
    Rule(
        r"^(\[rank\d+\]: ?)?(ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError)\b",
        1,
        "fail",
        "its code cannot be loaded, which no retry fixes",
    ),
    Rule(rf"\bXid \([^)]*\): ({'|'.join(map(str, XIDS))})\b", None, "exclude_host"),
    Rule(r"(?i)uncorrectable ECC error|double[- ]bit ECC", None, "exclude_host"),
    Rule(r"CUDA error: (unknown error|hardware stack error)|GPU has fallen off the bus", None, "exclude_host"),
    Rule(
        r"ncclSystemError|NCCL WARN.*(No such device|IBV_WC_RETRY_EXC_ERR|local catastrophic error)",
        None,
        "exclude_host",
    ),
)
