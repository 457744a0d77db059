#!/bin/sh
# Starts the container of one node of a job with this host's Docker Engine. Written by jobctl.
# Paths of the job are relative to this file. Running it again changes nothing.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
image=pytorch/pytorch:2.13.0

set -- \
  --name jobctl-resnet-0 \
  --hostname resnet-0 \
  --add-host resnet-0:10.0.0.1 \
  --label jobctl.job=resnet \
  --label jobctl.node=0 \
  --label jobctl.role=trainer \
  --label jobctl.owner=ada@desk \
  --mount 'type=bind,"source='"$dir/"'node-0",target=/jobctl/node' \
  --mount 'type=bind,"source='"$dir/"'launcher.py",target=/jobctl/launcher.py,readonly' \
  --mount 'type=bind,"source='"$dir/"'run",target=/jobctl/run,readonly' \
  --network host \
  --init \
  --restart unless-stopped \
  --stop-timeout 45 \
  --pull missing \
  --entrypoint '' \
  --env HIP_VISIBLE_DEVICES=0,1 \
  --env LR=0.1 \
  --env MODE=no \
  --device /dev/kfd \
  --device /dev/dri \
  --device /dev/fuse \
  --group-add video \
  --log-driver json-file \
  --log-opt max-file=3 \
  --log-opt max-size=10m \
  --group-add=video \
  --dns=10.0.0.1 \
  --dns \
  10.0.0.1 \
  --memory-swap=-1 \
  --env 'JOBCTL_LAUNCH={"node":0,"host":"gpu01","role":"trainer","nproc":2,"start":["python3","-m","torch.distributed.run","--nnodes",{"slot":"nnodes"},"--node-rank",{"slot":"node_rank"},"--nproc-per-node","2","--master-addr",{"slot":"master_addr"},"--master-port",{"slot":"master_port"},"--no-python",{"slot":"process"}],"command":["python3","-u","train.py","--epochs","3"],"env":[["JOBCTL_CHECKPOINT_KEEP","2"],["OMP_NUM_THREADS","1"]],"log_name":"workerlog","devices":["cpu:0","cpu:1"],"setup":[],"secrets":[],"workdir":null,"interface":null,"interface_env":["NCCL_SOCKET_IFNAME","GLOO_SOCKET_IFNAME"],"stop_grace":45.0,"hang_timeout":null}' \
  -- "${JOBCTL_IMAGE:-$image}" python3 /jobctl/launcher.py --control /jobctl/run/control.json --dir /jobctl/node
[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"

docker() { command ${JOBCTL_DOCKER:-docker} "$@"; } # jobctl sets it where the engine is reached in another way, or is Podman
name=jobctl-resnet-0
spec=f45eea3338f5a52b6f45abae42391e97865fa3dccf46fd151697a8bec9248b01
found=$(docker container inspect --format '{{ index .Config.Labels "jobctl.spec" }}' -- "$name" 2>/dev/null) || found=none
case $found in
none)
  mkdir -p -- "$dir/"node-0
  docker run --detach ${JOBCTL_SECURITY:+--security-opt "$JOBCTL_SECURITY"} --label jobctl.version=0.1.0 --label jobctl.spec=f45eea3338f5a52b6f45abae42391e97865fa3dccf46fd151697a8bec9248b01 "$@"
  ;;
"$spec") docker start -- "$name" ;;
*)
  echo "container $name runs something else; remove it first: docker rm --force $name" >&2
  exit 1
  ;;
esac
