"""What is run on a login node: small scripts for any POSIX shell with coreutils, tar, util-linux and Slurm's commands."""

from __future__ import annotations

from jobctl.jobspec.deploy.transport.scripts import Scripts

SCRIPTS = Scripts(__name__)
