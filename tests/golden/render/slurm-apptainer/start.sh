#!/bin/sh
# Runs the container of one node with Apptainer on a machine of the allocation. Written by jobctl.
# pull FILE: fetches the image into a file that all nodes see.
# start NODE ADDRESS OWN FILE: becomes the container. OWN is this machine's own part of the job's directory; FILE has the
#   image.
# end: does nothing: a container is the processes in it.
# enter OWN PID COMMAND…: runs a command with what process PID of the container has.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
work=/shared/jobs/.jobctl/resnet
case $1 in
pull) exec apptainer pull --force "$2" docker://torch:2.9 >&2 ;;
end) exit 0 ;;
enter)
  pid=$3; shift 3
  exec nsenter --target "$pid" --user --preserve-credentials --mount --root --wd \
    python3 "$work/allocation.py" enter --work "$work" --pid "$pid" -- "$@"
  ;;
esac
node=$2 address=$3 own=$4 file=$5

exec apptainer exec --cleanenv --no-home --writable-tmpfs \
  --nv \
  --mount type=bind,source=/shared/jobs/.jobctl/resnet,destination=/shared/jobs/.jobctl/resnet \
  --mount type=bind,source=/shared/jobs/.jobctl/resnet/code,destination=/workspace \
  --mount 'type=bind,"source=/data/a,b",destination=/data,ro' \
  --mount type=bind,source=/shared/checkpoints,destination=/shared/checkpoints \
  "$file" \
  python3 "$work/allocation.py" inside --work "$work" --own "$own" --environ "$work/environ.json" -- \
  python3 "$work/launcher.py" \
  --control "$work/run/control.json" \
  --launch "$own/launch.json" \
  --names "$own/names.json" \
  --address "$address" \
  --secrets "$work/secrets/secrets.json" \
  --own "$own" \
  --dir "$work/node-$node"
