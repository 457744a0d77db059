#!/bin/sh
# Runs the container of one node with Enroot on a machine of the allocation. Written by jobctl.
# pull FILE: fetches the image into a file that all nodes see.
# start NODE ADDRESS OWN FILE: becomes the container. OWN is this machine's own part of the job's directory; FILE has the
#   image.
# end NODE ADDRESS OWN: removes what the container has left.
# enter OWN PID COMMAND…: runs a command with what process PID of the container has.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
work=/shared/jobs/.jobctl/resnet
case $1 in
pull) exec enroot import --output "$2" -- 'docker://quay.io#lab/torch:2.9' >&2 ;;
enter)
  pid=$3; shift 3
  exec enroot exec -- "$pid" python3 "$work/allocation.py" enter --work "$work" --pid "$pid" -- "$@"
  ;;
esac
node=$2 address=$3 own=$4
# OWN is hosts/MACHINE/SLOT. Enroot keeps containers in the user's home, which machines may share: without the machine's name,
# each would remove the containers of the others.
name=jobctl-resnet-${SLURM_JOB_ID:-0}-$(basename -- "${own%/*}")-${own##*/}
if enroot list | grep -qxF -e "$name"; then enroot remove --force -- "$name" >&2; fi
[ "$1" = start ] || exit 0
enroot create --name "$name" -- "$5" >&2
# In place of the image's own entry point.
printf '%s\n' 'exec "$@"' >"$own/rc"

exec enroot start --rw --rc "$own/rc" \
  --env NVIDIA_VISIBLE_DEVICES=all \
  --env NVIDIA_DRIVER_CAPABILITIES=all \
  --mount /shared/jobs/.jobctl/resnet:/shared/jobs/.jobctl/resnet:none:x-create=auto,rbind,rw \
  --mount /shared/jobs/.jobctl/resnet/code:/workspace:none:x-create=auto,rbind,rw \
  --mount /data:/data:none:x-create=auto,rbind,ro \
  --mount /shared/checkpoints:/shared/checkpoints:none:x-create=auto,rbind,rw \
  -- "$name" \
  python3 "$work/allocation.py" inside --work "$work" --own "$own" --environ "$work/environ.json" -- \
  python3 "$work/launcher.py" \
  --control "$work/run/control.json" \
  --launch "$own/launch.json" \
  --names "$own/names.json" \
  --address "$address" \
  --secrets "$work/secrets/secrets.json" \
  --own "$own" \
  --dir "$work/node-$node"
