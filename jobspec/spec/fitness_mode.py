"""How thorough a fitness check is: `fitness` of the spec, and `--fitness` of `jobctl check`."""

from typing import Literal, TypeAlias

FitnessMode: TypeAlias = Literal["off", "quick", "full"]
