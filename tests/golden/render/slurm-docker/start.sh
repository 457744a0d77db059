#!/bin/sh
# Runs the container of one node with Docker on a machine of the allocation. Written by jobctl.
# pull FILE: fetches the image into a file that all nodes see.
# start NODE ADDRESS OWN FILE: becomes the container. OWN is this machine's own part of the job's directory; FILE has the
#   image, nothing if the node has it.
# end NODE ADDRESS OWN: removes what the container has left.
# enter OWN PID COMMAND…: runs a command with what process PID of the container has.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
work=/shared/jobs/.jobctl/resnet
image=torch:2.9
case $1 in
pull)
  docker pull --quiet -- "$image" >&2
  exec docker save --output "$2" -- "$image" >&2
  ;;
enter) own=$2 ;;
*) own=$4 ;;
esac
name=jobctl-resnet-${SLURM_JOB_ID:-0}-${own##*/}
if [ "$1" = enter ]; then
  pid=$3; shift 3
  set -- python3 "$work/allocation.py" enter --work "$work" --pid "$pid" -- "$@"
  if [ -t 0 ]; then set -- --tty "$name" "$@"; else set -- "$name" "$@"; fi
  exec docker exec --interactive "$@"
fi
if docker container inspect "$name" >/dev/null 2>&1; then docker rm --force "$name" >/dev/null; fi
[ "$1" = start ] || exit 0
node=$2 address=$3 file=$5

if [ -n "$file" ]; then
  known=$own/image
  if [ -z "$(find "$known" -newer "$file" 2>/dev/null)" ] || ! docker image inspect "$(cat "$known")" >/dev/null 2>&1; then
    said=$(docker load --input "$file")
    docker image inspect --format '{{.Id}}' "${said##*: }" >"$known"
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
# shellcheck disable=SC2086 # no option, or one
set -- \
  --rm \
  --network host \
  --pull never \
  --entrypoint '' \
  --log-driver none \
  --stop-timeout 50 \
  --mount type=bind,source=/shared/jobs/.jobctl/resnet,target=/shared/jobs/.jobctl/resnet \
  --mount type=bind,source=/shared/jobs/.jobctl/resnet/code,target=/workspace \
  --mount type=bind,source=/shared/checkpoints,target=/shared/checkpoints \
  --shm-size 68719476736 \
  --ulimit memlock=-1:-1 \
  --ulimit nofile=1024:1024 \
  --memory 8589934592 \
  --cpus 2.0 \
  -- "$image" \
  python3 "$work/allocation.py" inside --work "$work" --own "$own" --environ "$work/environ.json" $named -- \
  python3 "$work/launcher.py" \
  --control "$work/run/control.json" \
  --launch "$own/launch.json" \
  --names "$own/names.json" \
  --address "$address" \
  --secrets "$work/secrets/secrets.json" \
  --own "$own" \
  --dir "$work/node-$node"
set -- --user "$(id -u):$(id -g)" "$@"
[ "$gpus" = all ] || gpus="\"device=$gpus\""
set -- --gpus "$gpus" "$@"
[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"
exec docker run --name "$name" "$@"
