#!/bin/sh
# Starts the container of one node of a job with this host's Docker Engine. Written by jobctl.
# Paths of the job are relative to this file. Running it again changes nothing.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
image=torch:1

set -- \
  --name jobctl-resnet-0 \
  --hostname resnet-0 \
  --add-host resnet-0:10.0.0.1 \
  --label jobctl.job=resnet \
  --label jobctl.node=0 \
  --label jobctl.role=trainer \
  --label jobctl.owner=ada@desk \
  --label jobctl.devices=gpu:0,gpu:1 \
  --mount 'type=bind,"source='"$dir/"'node-0",target=/jobctl/node' \
  --mount 'type=bind,"source='"$dir/"'launcher.py",target=/jobctl/launcher.py,readonly' \
  --mount 'type=bind,"source='"$dir/"'run",target=/jobctl/run,readonly' \
  --mount 'type=bind,"source='"$dir/"'secrets",target=/jobctl/secrets,readonly' \
  --mount 'type=bind,"source='"$dir/"'code",target=/workspace' \
  --network host \
  --init \
  --restart unless-stopped \
  --stop-timeout 50 \
  --pull missing \
  --entrypoint '' \
  --mount type=bind,source=/mnt/resnet,target=/mnt/resnet \
  --gpus '"device=0,1"' \
  --ulimit "memlock=${JOBCTL_MEMLOCK:--1}:${JOBCTL_MEMLOCK:--1}" \
  --ulimit "nice=${JOBCTL_NICE:-0}:${JOBCTL_NICE:-0}" \
  --shm-size 68719476736 \
  --log-driver json-file \
  --log-opt max-file=3 \
  --log-opt max-size=10m \
  --user "${JOBCTL_USER:-$(id -u):$(id -g)}" \
  --workdir /workspace \
  --env 'JOBCTL_LAUNCH={"node":0,"host":"gpu01","role":"trainer","nproc":2,"start":["python3","-m","torch.distributed.run","--log-dir",{"slot":"scratch"},"--nnodes",{"slot":"nnodes"},"--node-rank",{"slot":"node_rank"},"--nproc-per-node","2","--master-addr",{"slot":"master_addr"},"--master-port",{"slot":"master_port"},"--rdzv-id",{"slot":"rdzv_id"},"--local-addr",{"slot":"address"},"--max-restarts","0","--no-python",{"slot":"process"}],"command":["python3","-u","train.py"],"env":[["JOBCTL_CHECKPOINT_KEEP","2"]],"log_name":"workerlog","devices":["gpu:0","gpu:1"],"setup":[],"secrets":["TOKEN"],"workdir":"/workspace","interface":null,"interface_env":["NCCL_SOCKET_IFNAME","GLOO_SOCKET_IFNAME","TP_SOCKET_IFNAME"],"stop_grace":45.0,"hang_timeout":null,"scrub":["PET_RDZV_BACKEND","PET_RDZV_ENDPOINT","PET_STANDALONE","PET_MODULE","PET_RUN_PATH"],"standby":{"imports":[["torch","torch.distributed"],["torch._dynamo"]],"launcher":"torch.distributed.run","off":"","changing":["GROUP_RANK","GROUP_WORLD_SIZE","ROLE_RANK","ROLE_WORLD_SIZE","TORCHELASTIC_ERROR_FILE","TORCHELASTIC_RESTART_COUNT","TORCHELASTIC_RUN_ID"],"meets":[]}}' \
  -- "${JOBCTL_IMAGE:-$image}" python3 /jobctl/launcher.py --control /jobctl/run/control.json --dir /jobctl/node --secrets /jobctl/secrets/secrets.json
[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"

docker() { command ${JOBCTL_DOCKER:-docker} "$@"; } # jobctl sets it where the engine is reached in another way, or is Podman
name=jobctl-resnet-0
spec=5f41cc33a6248ac399bbbfaa782b4073a9334488ed97f79103c6913b82ceef40
found=$(docker container inspect --format '{{ index .Config.Labels "jobctl.spec" }}' -- "$name" 2>/dev/null) || found=none
case $found in
none)
  mkdir -p -- "$dir/"node-0
  docker run --detach ${JOBCTL_SECURITY:+--security-opt "$JOBCTL_SECURITY"} --label jobctl.version=1.0 --label jobctl.inputs=30ebaac1fc3c6672c5cd3ef1f82e4fcabd9f21425da1b73df7bee9ea8b46efb4 --label jobctl.spec=5f41cc33a6248ac399bbbfaa782b4073a9334488ed97f79103c6913b82ceef40 "$@"
  ;;
"$spec") docker start -- "$name" ;;
*)
  echo "container $name runs something else; remove it first: docker rm --force $name" >&2
  exit 1
  ;;
esac
