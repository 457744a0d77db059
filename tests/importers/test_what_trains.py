"""Of commands that could all train, the one that does; and on how many nodes if its own number is not known."""

from __future__ import annotations

import pytest

from jobctl.jobspec.importers.jobs import ImportContext, import_text
from jobctl.jobspec.importers.launchers.options import NODES_TAKEN

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
        "docker run --gpus all lab/torch:1 bash -c 'ulimit -n 9999; mkdir -p out && python train.py'\n",
        "mpirun -H a:8,b:8 -x MASTER_ADDR=a python train.py\nmpirun -np 2 -x MASTER_ADDR=a python prepare.py\n",
    ],
)
def test_what_comes_before_is_not_the_job(script: str) -> None:
    job = import_text(script, CONTEXT)
    assert job.fields.get("script") == "train.py", job.fields


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("$SCRIPT", "script"),
        ("$DIR/$SCRIPT", "script"),
        ("$DIR/train.py", "script"),
        ("${SCRIPT:-train.py}", "script"),
        ("./run_$MODE.sh", "command"),
        ("$BIN/train", "command"),
        ("${SCRIPT:-run.sh}", "command"),
    ],
)
def test_what_is_a_program_to_paddles_launcher(word: str, kind: str) -> None:
    job = import_text(f"python -m paddle.distributed.launch --gpus 0,1 {word} --x 1\n", CONTEXT)
    assert {"script", "command"} & {*job.fields} == {kind}


NODES = "#!/bin/bash\n#SBATCH --nodes=4 --gres=gpu:4\n"


@pytest.mark.parametrize(
    "script",
    [
        f"{NODES}deepspeed --hostfile=hosts.$SLURM_JOB_ID --launcher slurm train.py\n",
        f"{NODES}srun torchrun --nnodes=$(wc -l < nodes.txt) --nproc-per-node=4 train.py\n",
        f"{NODES}srun python -m paddle.distributed.launch --nnodes $N --gpus 0,1,2,3 train.py\n",
        "for h in a b c d; do ssh $h torchrun --nnodes=$(cat n | wc -l) --nproc-per-node=4 train.py; done\n",
        "for h in a b c d; do ssh $h python -m paddle.distributed.launch --nnodes $N --gpus 0 train.py; done\n",
    ],
)
def test_nodes_by_what_else_names_them(script: str) -> None:
    """A launcher that is told a number which nobody can read does not say one."""
    job = import_text(script, CONTEXT)
    assert job.fields["nodes"] == (4, 4)
    assert not [note for note in job.notes if "and the command" in note]


def test_nodes_that_nothing_names() -> None:
    job = import_text("torchrun --nnodes=$N --nproc-per-node=4 train.py\n", CONTEXT)
    assert (job.fields["nodes"], job.remarks["nodes"]) == ((1, 1), NODES_TAKEN)


def test_nodes_of_a_host_file_for_one_machine() -> None:
    job = import_text("deepspeed --hostfile=nowhere --include=localhost:0,1 train.py\n", CONTEXT)
    assert (job.fields["nodes"], job.remarks.get("nodes")) == ((1, 1), None)


@pytest.mark.parametrize(
    "script",
    [
        "docker run --gpus all $EXTRA_DOCKER_ARGS --rm $IMG torchrun --nproc-per-node=2 train.py --x 1\n",
        "docker run --gpus all $IMG torchrun $DISTRIBUTED_ARGS --nproc-per-node=2 train.py --x 1\n",
        f"{NODES}srun $SRUN_OPTS --label docker run $IMG torchrun --nproc-per-node=2 train.py --x 1\n",
    ],
)
def test_a_variable_of_options_is_no_image_and_no_script(script: str) -> None:
    """Nobody knows how many words it is; it cannot stand in the place of the one that follows."""
    job = import_text(script, CONTEXT)
    fields = job.fields
    assert (fields["image"], fields["script"], fields["args"]) == ("${IMG}", "train.py", ("--x", "1"))
    assert [
        note for note in job.notes if (note.startswith("not carried over: ${") and "ARGS" in note) or "OPTS" in note
    ]
