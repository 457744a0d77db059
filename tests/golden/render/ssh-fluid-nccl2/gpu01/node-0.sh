#!/bin/sh
# Starts the container of one node of a job with this host's Docker Engine. Written by jobctl.
# Paths of the job are relative to this file. Running it again changes nothing.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
image=paddlepaddle/paddle:1.8.5

set -- \
  --name jobctl-fluid-0 \
  --hostname fluid-0 \
  --add-host fluid-0:10.0.0.1 \
  --label jobctl.job=fluid \
  --label jobctl.node=0 \
  --label jobctl.role=trainer \
  --label jobctl.owner=ada@desk \
  --label jobctl.devices=gpu:0,gpu:1 \
  --mount 'type=bind,"source='"$dir/"'node-0",target=/jobctl/node' \
  --mount 'type=bind,"source='"$dir/"'launcher.py",target=/jobctl/launcher.py,readonly' \
  --mount 'type=bind,"source='"$dir/"'run",target=/jobctl/run,readonly' \
  --mount 'type=bind,"source='"$dir/"'code",target=/workspace' \
  --network host \
  --init \
  --restart unless-stopped \
  --stop-timeout 50 \
  --pull missing \
  --entrypoint '' \
  --mount type=bind,source=/opt/python3.11,target=/opt/python3.11,readonly \
  --mount type=bind,source=/mnt/fluid,target=/mnt/fluid \
  --gpus '"device=0,1"' \
  --ulimit "memlock=${JOBCTL_MEMLOCK:--1}:${JOBCTL_MEMLOCK:--1}" \
  --shm-size 68719476736 \
  --log-driver json-file \
  --log-opt max-file=3 \
  --log-opt max-size=10m \
  --workdir /workspace \
  --env 'JOBCTL_LAUNCH={"node":0,"host":"gpu01","role":"trainer","nproc":2,"start":[],"command":["python","-u","train.py"],"env":[["NCCL_SOCKET_IFNAME","eth0"],["GLOO_SOCKET_IFNAME","eth0"],["JOBCTL_CHECKPOINT_KEEP","2"],["PADDLE_TRAINER_ENDPOINTS",{"slot":"trainers"}],["PADDLE_TRAINERS_NUM",{"slot":"trainer_count"}],["POD_IP",{"slot":"address"}],["TRAINING_ROLE","TRAINER"],["PADDLE_TRAINING_ROLE","TRAINER"],["PADDLE_TRAINERS",{"slot":"trainer_count"}],["PADDLE_TRAINER_IPS",{"slot":"trainer_addresses"}],["PADDLE_CURRENT_IP",{"slot":"address"}],["FLAGS_tcp_store_using_libuv","0"]],"log_name":"workerlog","devices":["gpu:0","gpu:1"],"setup":[],"secrets":[],"workdir":"/workspace","interface":"eth0","interface_env":["NCCL_SOCKET_IFNAME","GLOO_SOCKET_IFNAME"],"stop_grace":45.0,"hang_timeout":null,"rank_env":["PADDLE_TRAINER_ID","PADDLE_RANK_IN_NODE"],"scrub":["PADDLE_*","POD_IP","POD_NAME","MASTER_ADDR","MASTER_PORT","DISTRIBUTED_TRAINER_ENDPOINTS","TRAINING_ROLE","FLAGS_START_PORT","FLAGS_selected_*"],"process_env":[["PADDLE_PORT",{"slot":"port"}],["PADDLE_CURRENT_ENDPOINT",{"slot":"endpoint"}],["PADDLE_PSERVER_PORT",{"slot":"port"}],["FLAGS_selected_gpus",{"slot":"local_rank"}]],"listens":true}' \
  -- "${JOBCTL_IMAGE:-$image}" /opt/python3.11/bin/python3 /jobctl/launcher.py --control /jobctl/run/control.json --dir /jobctl/node
[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"

docker() { command ${JOBCTL_DOCKER:-docker} "$@"; } # jobctl sets it where the engine is reached in another way, or is Podman
name=jobctl-fluid-0
spec=ac6da2c34ae692c49bc0b70585ec19fcc13a97514b2270ecd31d705ce76c3891
found=$(docker container inspect --format '{{ index .Config.Labels "jobctl.spec" }}' -- "$name" 2>/dev/null) || found=none
case $found in
none)
  mkdir -p -- "$dir/"node-0
  docker run --detach ${JOBCTL_SECURITY:+--security-opt "$JOBCTL_SECURITY"} --label jobctl.version=1.0 --label jobctl.inputs=b51566999c84bd662fd5119be491d7d2537ee796ba70139aef8dd23a5265f5dd --label jobctl.spec=ac6da2c34ae692c49bc0b70585ec19fcc13a97514b2270ecd31d705ce76c3891 "$@"
  ;;
"$spec") docker start -- "$name" ;;
*)
  echo "container $name runs something else; remove it first: docker rm --force $name" >&2
  exit 1
  ;;
esac
