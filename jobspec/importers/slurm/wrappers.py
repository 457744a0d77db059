"""What stands around a command in batch scripts: `srun`, and the containers of apptainer, singularity and enroot."""

from __future__ import annotations

from dataclasses import replace

from jobctl.jobspec.importers.launchers.docker import DockerRun
from jobctl.jobspec.importers.names import UNKNOWN_OPTIONS, are_options
from jobctl.jobspec.importers.notes import NO_PLACE
from jobctl.jobspec.importers.shell.expand import Read
from jobctl.jobspec.importers.slurm import containers, recipes
from jobctl.jobspec.importers.slurm.option_syntax import exported, split
from jobctl.jobspec.importers.start_command import Inside, StartCommand


def srun(launch: StartCommand, read: Read) -> Inside | None:
    """Return the command that `srun` starts, with what its options say; None without one."""
    said, rest = split(launch.argv[1:])
    while are_options(rest):
        launch = launch.noting(rest[0], UNKNOWN_OPTIONS)
        more, rest = split(rest[1:])
        said += more
    if not rest:
        return None
    options = dict(said)
    env = {**launch.env, **exported(options.get("--export", ""))}
    tasks = options.get("--ntasks") or str(env.get("SLURM_NTASKS") or "")
    each = options.get("--ntasks-per-node") or str(env.get("SLURM_NTASKS_PER_NODE") or "")
    inner = replace(
        launch,
        argv=tuple(rest),
        env=env,
        processes=int(tasks) if tasks.isdigit() else None,
        per_node=int(each) if each.isdigit() else None,
    )
    for name, value in options.items():
        if name in _COUNTED and value.rpartition(":")[2] != str(env.get(_COUNTED[name])):
            inner = inner.noting(f"srun {name}={value}", "each node has what `#SBATCH` lines ask for")
        elif name in _DROPPED and recipes.NODE not in value:
            inner = inner.noting(f"srun {name}={value}", _DROPPED[name])
        elif name not in _KNOWN and name not in _COUNTED and name not in _DROPPED:
            inner = inner.noting(f"srun {name}{'=' if value else ''}{value}", "jobctl starts the processes itself")
    image = options.get("--container-image")
    if image is None:
        return (inner,)
    container = containers.pyxis({**options, "--container-image": launch.images.get(image, image)}, rest)
    if container is None:
        return (inner.noting(f"srun --container-image={image}", _NO_IMAGE),)
    return (replace(inner, container=container, folder="."),)


# What is carried over, and what has no meaning for the job: jobctl keeps logs by itself, and starts one step.
_KNOWN = {
    "--nodes", "--ntasks", "--ntasks-per-node", "--export", "--container-image", "--container-mounts",
    "--container-workdir", "--container-name", "--no-container-mount-home", "--label", "--unbuffered", "--job-name",
    "--kill-on-bad-exit", "--wait", "--overlap", "--verbose", "--quiet", "--exclusive", "--jobid",
}  # fmt: skip
# What is dropped although it says something: on which nodes a step runs, and where it writes.
_DROPPED = {
    "--output": "logs are kept by jobctl: `jobctl logs`",
    "--error": "logs are kept by jobctl: `jobctl logs`",
    "--nodelist": "Slurm chooses the nodes: `slurm.options` takes `--nodelist` of the whole job",
    "--relative": "jobctl deals the nodes itself",
}
# What `#SBATCH` lines count too, and the variable that says how many it is there.
_COUNTED = {
    "--cpus-per-task": "SLURM_CPUS_PER_TASK",
    "--gres": "SLURM_GPUS_ON_NODE",
    "--gpus-per-node": "SLURM_GPUS_ON_NODE",
    "--gpus": "SLURM_GPUS_ON_NODE",
    "--gpus-per-task": "SLURM_GPUS_ON_NODE",
}
_NO_IMAGE = "`image` takes the whole path of such a file, and `slurm.container` its program"


def apptainer(launch: StartCommand, read: Read) -> Inside | None:
    """Return the command that `apptainer exec` or `run` starts in a container; None for its other commands."""
    return _in_container(launch, containers.apptainer(launch.argv[1:]))


def enroot(launch: StartCommand, read: Read) -> Inside | None:
    """Return the command that `enroot start` starts in a container; None for its other commands."""
    return _in_container(launch, containers.enroot(launch.argv[1:]))


def _in_container(launch: StartCommand, found: tuple[str, DockerRun, list[str]] | None) -> Inside | None:
    if found is None or launch.container is not None:
        return None
    name, container, lost = found
    env, volumes = containers.of_container(launch.env)
    given = {key: launch.env.get(key) if value is None else value for key, value in container.env.items()}
    # What Enroot calls by a name alone is a container that was made of an image before.
    is_nameless = launch.head == "enroot" and name not in launch.images and "/" not in name
    made = "" if is_nameless else containers.image(launch.images.get(name, name)) or ""
    container = replace(container, image=made, options=(*volumes, *container.options))
    inner = replace(launch, argv=container.argv, env={**env, **given})
    for option in lost:
        inner = inner.noting(f"{launch.head} {option}", _RUN if option == "run" else NO_PLACE)
    if container.image:
        return (replace(inner, container=container, folder="."),)
    for option, value in container.options:
        inner = (
            inner
            if option == "--env" or value.startswith("$$PWD:")
            else inner.noting(f"{launch.head} {option} {value}", "there is no container")
        )
    what = f"{launch.head} {'start' if launch.head == 'enroot' else 'exec'} {name}"
    return (inner.noting(what, _NO_NAME if is_nameless else _NO_IMAGE),)


_RUN = "jobctl starts the command itself, and not the image's run script"
_NO_NAME = "nothing here says which image that is: name it in `image`"
