"""Writes the pages of docs/ that are generated: `python -m jobctl.jobspec.spec DOCS`."""

from __future__ import annotations

import sys
from pathlib import Path

from jobctl.jobspec.spec.reference import codes_page, spec_page

docs = Path(sys.argv[1])
docs.joinpath("spec.md").write_text(spec_page(), encoding="utf-8")
docs.joinpath("diagnostics.md").write_text(codes_page(), encoding="utf-8")
