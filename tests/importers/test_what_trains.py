"""Of commands that could all train, the one that does."""

from __future__ import annotations

import pytest

from jobctl.jobspec.importers.jobs import ImportContext, import_text

FILES = {"prepare.py": "import torch\n", "train.py": "import torch\n"}
CONTEXT = ImportContext("/work", "work", FILES.get)
BATCH = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=4 --gres=gpu:4\nexport MASTER_ADDR=a MASTER_PORT=29500\n"


@pytest.mark.parametrize(
    "script",
    [
        f"{BATCH}python prepare.py\nsrun python train.py\n",
        f"{BATCH}srun -n1 -N1 python prepare.py\nsrun python train.py\n",
        f'{BATCH}python -c "import torch; print(torch.__version__)"\nsrun python train.py\n',
        "mpirun -np 1 python prepare.py\nmpirun -np 8 python train.py\n",
        "docker run --gpus all lab/torch:1 nvidia-smi\ndocker run --gpus all lab/torch:1 python train.py\n",
        "export RANK=0 WORLD_SIZE=1\npython train.py\npython prepare.py\n",
    ],
)
def test_what_comes_before_is_not_the_job(script: str) -> None:
    job = import_text(script, CONTEXT)
    assert job.fields.get("script") == "train.py", job.fields
