#!/bin/sh
# Runs the container of one node with Podman on a machine of the allocation. Written by jobctl.
# pull FILE: fetches the image into a file that all nodes see.
# start NODE ADDRESS OWN FILE: becomes the container. OWN is this machine's own part of the job's directory; FILE has the
#   image, nothing if the node has it.
# end NODE ADDRESS OWN: removes what the container has left.
# enter OWN PID COMMAND…: runs a command with what process PID of the container has.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
work=/shared/jobs/.jobctl/.look-resnet.3fa9
image=quay.io/lab/torch:2.9
# Where nobody has logged in, there is no such directory on a node; podman takes another one then.
[ -d "${XDG_RUNTIME_DIR:-/}" ] || unset XDG_RUNTIME_DIR
case $1 in
pull)
  podman pull --quiet -- "$image" >&2
  exec podman save --output "$2" -- "$image" >&2
  ;;
enter) own=$2 ;;
*) own=$4 ;;
esac
name=jobctl-resnet-${SLURM_JOB_ID:-0}-${own##*/}
if [ "$1" = enter ]; then
  pid=$3; shift 3
  set -- python3 "$work/allocation.py" enter --work "$work" --pid "$pid" -- "$@"
  if [ -t 0 ]; then set -- --tty "$name" "$@"; else set -- "$name" "$@"; fi
  exec podman exec --interactive "$@"
fi
if podman container inspect "$name" >/dev/null 2>&1; then podman rm --force "$name" >/dev/null; fi
[ "$1" = start ] || exit 0
file=$5

if [ -n "$file" ]; then
  known=$own/image
  if [ -z "$(find "$known" -newer "$file" 2>/dev/null)" ] || ! podman image inspect "$(cat "$known")" >/dev/null 2>&1; then
    said=$(podman load --input "$file")
    podman image inspect --format '{{.Id}}' "${said##*: }" >"$known"
  fi
  image=$(cat "$known")
fi

# Where a job may open no other GPUs than its own (ConstrainDevices), Slurm counts these from 0 in CUDA_VISIBLE_DEVICES. A
# container may be outside of the job's control group, and would take the first ones of the machine. So it gets the job's
# GPUs by their numbers on the machine, and no variable that counts. UUIDs mean the same everywhere.
case ${CUDA_VISIBLE_DEVICES:-},${SLURM_STEP_GPUS:-} in
*[!0-9,]* | *,) gpus=all named= ;;
*) gpus=$SLURM_STEP_GPUS named=--named-devices ;;
esac
shift 5
# shellcheck disable=SC2086 # no option, or one
set -- \
  --rm \
  --network host \
  --pull never \
  --entrypoint '' \
  --log-driver none \
  --stop-timeout 50 \
  --mount type=bind,source=/shared/jobs/.jobctl/.look-resnet.3fa9,target=/shared/jobs/.jobctl/.look-resnet.3fa9 \
  --mount type=bind,source=/shared/jobs/.jobctl/.look-resnet.3fa9/code,target=/workspace \
  --mount 'type=bind,"source=/data/a,b",target=/data,readonly' \
  --mount type=tmpfs,target=/scratch \
  --mount type=bind,source=/shared/checkpoints,target=/shared/checkpoints \
  --shm-size 68719476736 \
  --security-opt label=disable \
  --ulimit host \
  -- "$image" \
  python3 "$work/allocation.py" inside --work "$work" --own "$own" --environ "$work/environ.json" $named --look --secrets "$work/secrets/secrets.json" --workdir /workspace -- "$@"
if [ -t 0 ]; then set -- --tty "$@"; fi
set -- --interactive "$@"
set -- --user "$(id -u):$(id -g)" "$@"
[ "$(id -u)" = 0 ] || set -- --userns=keep-id "$@"
# Without a control group of its own, what runs in the container counts as the job's, and ends with it.
[ "$(podman info --format '{{.Host.OCIRuntime.Name}}')" != crun ] || set -- --cgroups=disabled "$@"
for gpu in $(echo "$gpus" | tr , ' '); do set -- --device "nvidia.com/gpu=$gpu" "$@"; done
[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"
exec podman run --name "$name" "$@"
