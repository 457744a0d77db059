"""`jobctl schema`: the JSON Schema of the spec."""

from __future__ import annotations

from jobctl import console
from jobctl.views.failure import command


@command
def schema() -> None:
    """Print the JSON Schema of the spec, for editors.

    Example: jobctl schema > job.schema.json
    """
    from jobctl.jobspec.spec.schema import json_schema

    console.out_json(json_schema())
