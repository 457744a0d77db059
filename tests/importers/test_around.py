"""What stands around a launcher: shells in shells, `docker run`, `mpirun`."""

from __future__ import annotations

from typing import Any

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


MPI = "mpirun -np 8 -H a:4,b:4"


@pytest.mark.parametrize(
    ("command", "fields", "notes"),
    [
        (f"{MPI} -x A -x B=1 python train.py", {"env": {"B": "1", "A": None}}, []),
        ("mpiexec -n 8 -hosts a:4,b:4 -genv A 1 -env B 2 -genv C=3 -genvlist D,E python train.py",
         {"env": {"A": "1", "B": "2", "C": "3", "D": None, "E": None}}, []),
        ("mpirun -np 8 -wdir /opt/train python train.py", {"nodes": (1, 1), "code": "/opt/train"}, []),
        (f"{MPI} --wdir /opt/train python train.py", {"code": "."},
         ["check: the command runs in `/opt/train`: that code has to be beside this file"]),
        ("mpirun -np 4 -H a:4 python train.py --sep , : -np 4 -H b:4 python train.py --sep ,", {}, []),
        (f"{MPI} python train.py : -np 1 python serve.py --x 1", {"args": None},
         ["not carried over: : … python serve.py --x 1 (all processes of a job start with the same command)"]),
    ],
)  # fmt: skip
def test_what_mpirun_is_told(command: str, fields: dict[str, object], notes: list[str]) -> None:
    job = imported(command, **{"train.py": "import torch\n"})
    told = {"script": "train.py", "nodes": (2, 2), **fields}
    assert ({key: job.fields.get(key) for key in told}, list(job.notes)) == (told, notes)
    assert [host.name for host in job.hosts] == (["a", "b"] if told["nodes"] == (2, 2) else [])


def test_all_variables_of_docker_exec_are_kept() -> None:
    job = imported(f"docker exec -e A=1 --env B=2 -eC=3 -w /opt trainer {TRAIN}\n")
    assert job.fields["env"] == {"A": "1", "B": "2", "C": "3"}


@pytest.mark.parametrize(
    ("mount", "volume", "lost"),
    [
        ("type=bind,src=/a,dst=/b,readonly", "/a:/b:ro", ""),
        ("type=bind,src=/a,dst=/b,readonly=true", "/a:/b:ro", ""),
        ("type=bind,src=/a,dst=/b,readonly=false", "/a:/b", ""),
        ("type=bind,src=/a,dst=/b,ro=0,bind-propagation=rshared", "/a:/b", "bind-propagation=rshared"),
        ("src=v,dst=/b,volume-subpath=c,volume-opt=type=nfs,ro", "v:/b:ro", "volume-subpath=c,volume-opt=type=nfs"),
        ("type=tmpfs,dst=/b,tmpfs-size=1g", {"type": "tmpfs", "target": "/b"}, "tmpfs-size=1g"),
    ],
)
def test_mounts_of_docker_run(mount: str, volume: object, lost: str) -> None:
    job = imported(f"docker run --mount {mount} lab/torch:1 {TRAIN}")
    assert job.fields["volumes"] == (volume,)
    told = f"not carried over: {lost} of --mount={mount} (only `ro` has a place in `volumes`)"
    assert [note for note in job.notes if "mount" in note] == ([told] if lost else [])


@pytest.mark.parametrize(
    ("options", "devices"),
    [
        ("--gpus '\"device=4,5\"' -e CUDA_VISIBLE_DEVICES=1", "5"),
        ("--gpus '\"device=4,5\"' -e CUDA_VISIBLE_DEVICES=1,0", "5,4"),
        ("--gpus '\"device=4,5\"' -e NVIDIA_VISIBLE_DEVICES=4", "4-5"),  # of the host, and --gpus wins
        ("--gpus '\"device=4,5\"' -e CUDA_VISIBLE_DEVICES=4", "4-5"),  # there is none
        ("--gpus '\"device=4,5\"'", "4-5"),
        ("--gpus all -e CUDA_VISIBLE_DEVICES=1", "1"),
    ],
)
def test_devices_in_a_container_are_numbered_again(options: str, devices: str) -> None:
    job = imported(f"docker run {options} lab/torch:1 torchrun --nproc_per_node=gpu train.py")
    assert job.fields["devices"] == {"kind": "gpu", "ids": devices}


ENV = "# c='d'\nA=1\nB='2'\n C=a#b\nD=a #b\nE=$A\nF\nG= x\n"
COMPOSE = "`env_file` takes off quotes and ` #` with what follows, and fills in `$NAME`, as Compose does"


@pytest.mark.parametrize(
    ("files", "names"),
    [({".env.job": ENV}, [" (B, D, E, G)"]), ({".env.job": "A=1\nB=a#b\n"}, []), ({}, [""])],
)
def test_env_files_that_docker_reads_otherwise(files: dict[str, str], names: list[str]) -> None:
    job = imported(f"docker run --env-file .env.job lab/torch:1 {TRAIN}", **files)
    told = [f"check: --env-file .env.job{told}: Docker takes values as they are, {COMPOSE}" for told in names]
    assert [note for note in job.notes if "env-file" in note] == told


def test_an_env_file_of_docker_exec_is_taken_in() -> None:
    job = imported(f"docker exec --env-file .env.job --env-file=more.env -e A=1 trainer {TRAIN}\n", **{".env.job": ENV})
    assert (job.fields["env_file"], job.fields["env"]) == ((".env.job", "more.env"), {"A": "1"})
    assert [note for note in job.notes if "env-file" in note] == [
        f"check: --env-file {told}: Docker takes values as they are, {COMPOSE}"
        for told in (".env.job (B, D, E, G)", "more.env")
    ]


@pytest.mark.parametrize(
    "told", ["docker exec --env-file b.env -e D=4 c {}", "docker exec -it --env-file b.env -e D=4 c sh\n{}"]
)
def test_an_env_file_of_docker_exec_counts_before_the_variables_of_the_container(told: str) -> None:
    run = "docker run -d --name c --env-file a.env -e A=1 -e B=2 -e D=3 lab/torch:1 sleep infinity\n"
    job = imported(run + told.format(TRAIN), **{"a.env": "E=1\n", "b.env": "#B=1\nA=5\nD=5\nE=5\n"})
    assert (job.fields["env_file"], job.fields["env"]) == (("a.env", "b.env"), {"B": "2", "D": "4"})


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ("--env-file a.env", {"env_file": ("a.env",)}),
        ("-e A=1 -e B --env C=3", {"env": {"A": "1", "B": None, "C": "4"}}),
        ("--user 1000", {"env": {"C": "4"}}),
    ],
)
def test_a_shell_in_a_container_of_somebody_else(options: str, fields: dict[str, Any]) -> None:
    typed = "" if "env_file" in fields else "export C=4\n"
    job = imported(f"docker exec -it {options} trainer bash\n{typed}{TRAIN}\n", **{"a.env": "A=1\n"})
    assert {key: job.fields[key] for key in ("env", "env_file") if key in job.fields} == fields
    told = f"`docker exec -it {options} trainer bash`: what follows is taken to be typed into it"
    assert job.notes == (
        "not carried over: docker exec trainer (jobctl makes its own containers: set `image`)",
        f"check: line 1: {told}",
    )


MANIFEST = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bert}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          containers:
            - {name: pytorch, image: lab/torch:1, command: [torchrun, train.py], resources: {limits: {amd.com/gpu: 8}}}
"""


def test_gpus_of_amd_in_a_manifest() -> None:
    fields = imported(MANIFEST).fields
    told = {"operator": "kubeflow", "resource_name": "amd.com/gpu"}
    assert (fields["devices"], fields["kubernetes"]) == ("dcu:8", told)
