"""What stands around a launcher: shells in shells, `docker run`, `mpirun`."""

from __future__ import annotations

import pytest

from jobctl.jobspec.importers.draft import Found
from jobctl.jobspec.importers.jobs import ImportContext, import_text

TRAIN = "torchrun --nproc_per_node 8 train.py"


def imported(script: str, **files: str) -> Found:
    return import_text(script, ImportContext("/work", "work", files.get))


@pytest.mark.parametrize(
    ("script", "args"),
    [
        ("""ssh h "torchrun train.py '$X' 'a $X/$Y b' '\\$5' '' ${Z:-1}" """,
         ("${X}", "a ${X}/${Y} b", "$$5", "", "${Z:-1}")),
        ("""docker run lab/torch:1 bash -c "torchrun train.py '$X' \\"$Y\\"" """, ("${X}", "${Y}")),
        ("""eval "torchrun train.py '$X'" """, ("${X}",)),
        ("""ssh h <<EOF\nA=('$X' "it's $Y")\ntorchrun train.py "\\${A[@]}"\nEOF""", ("${X}", "it's ${Y}")),
        ("""ssh h <<'EOF'\ntorchrun train.py '$X' "$Y"\nEOF""", ("$$X", "${Y}")),  # no outer shell fills it in
        ("""ssh h 'torchrun train.py '"'$X'" """, ("${X}",)),
        ("""X=1; ssh h "torchrun train.py '$X'" """, ("1",)),
    ],
)  # fmt: skip
def test_the_outer_shell_fills_in_what_is_quoted_for_the_inner_one(script: str, args: tuple[str, ...]) -> None:
    assert imported(script).fields["args"] == args
