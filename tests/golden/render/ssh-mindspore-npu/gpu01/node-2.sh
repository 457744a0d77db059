#!/bin/sh
# Starts the container of one node of a job with this host's Docker Engine. Written by jobctl.
# Paths of the job are relative to this file. Running it again changes nothing.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
image=ms:1

set -- \
  --name jobctl-lenet-2 \
  --hostname lenet-2 \
  --add-host lenet-2:10.0.0.1 \
  --label jobctl.job=lenet \
  --label jobctl.node=2 \
  --label jobctl.role=scheduler \
  --label jobctl.owner=ada@desk \
  --mount 'type=bind,"source='"$dir/"'node-2",target=/jobctl/node' \
  --mount 'type=bind,"source='"$dir/"'launcher.py",target=/jobctl/launcher.py,readonly' \
  --mount 'type=bind,"source='"$dir/"'run",target=/jobctl/run,readonly' \
  --mount 'type=bind,"source='"$dir/"'code",target=/workspace' \
  --network host \
  --init \
  --restart unless-stopped \
  --stop-timeout 50 \
  --pull missing \
  --entrypoint '' \
  --mount type=bind,source=/mnt/lenet,target=/mnt/lenet \
  --ulimit "memlock=${JOBCTL_MEMLOCK:--1}:${JOBCTL_MEMLOCK:--1}" \
  --ulimit "nice=${JOBCTL_NICE:-0}:${JOBCTL_NICE:-0}" \
  --shm-size 68719476736 \
  --log-driver json-file \
  --log-opt max-file=3 \
  --log-opt max-size=10m \
  --workdir /workspace \
  --env 'JOBCTL_LAUNCH={"node":2,"host":"gpu01","role":"scheduler","nproc":1,"start":[],"command":["python3","-u","train.py"],"env":[["JOBCTL_CHECKPOINT_KEEP","2"],["MS_ROLE","MS_SCHED"],["MS_WORKER_NUM",{"slot":"trainer_count"}],["MS_SCHED_HOST",{"slot":"scheduler_address"}],["MS_SCHED_PORT",{"slot":"scheduler_port"}],["MS_TOPO_TIMEOUT","31536000"],["MS_HEARTBEAT_RETRY_TIMEOUT","600"],["MS_NODE_TIMEOUT","31536000"]],"log_name":"scheduler.log","devices":["cpu:0"],"setup":[],"secrets":[],"workdir":"/workspace","interface":null,"interface_env":["HCCL_SOCKET_IFNAME"],"stop_grace":45.0,"hang_timeout":null,"scrub":["MS_ROLE","MS_NODE_ID","MS_WORKER_NUM","MS_SERVER_NUM","MS_SCHED_HOST","MS_SCHED_PORT","MS_WORKER_IP","MS_ENABLE_RECOVERY","MS_RECOVERY_PATH","RANK_ID","RANK_SIZE","RANK_TABLE_FILE","DEVICE_ID"],"process_env":[["MS_NODE_ID","sched"]],"listens":true,"until":"trainer","rejoin":3,"meets":true,"standby":{"imports":[["mindspore"]],"launcher":"","off":"","changing":["MS_NODE_ID","MS_SCHED_HOST","MS_SCHED_PORT","MS_WORKER_IP","MS_WORKER_NUM","RANK_ID","RANK_SIZE"],"meets":[]}}' \
  -- "${JOBCTL_IMAGE:-$image}" python3 /jobctl/launcher.py --control /jobctl/run/control.json --dir /jobctl/node

docker() { command ${JOBCTL_DOCKER:-docker} "$@"; } # jobctl sets it where the engine is reached in another way, or is Podman
name=jobctl-lenet-2
spec=0bb908bba3d57a8eae189f090bbea0aea00f328588532b8718790b859314505b
found=$(docker container inspect --format '{{ index .Config.Labels "jobctl.spec" }}' -- "$name" 2>/dev/null) || found=none
case $found in
none)
  mkdir -p -- "$dir/"node-2
  docker run --detach ${JOBCTL_SECURITY:+--security-opt "$JOBCTL_SECURITY"} --label jobctl.version=1.0 --label jobctl.inputs=21625c05f2af9d04cb3804a316ba79dcd47b3d22760aa063321508b6bc9981f6 --label jobctl.spec=0bb908bba3d57a8eae189f090bbea0aea00f328588532b8718790b859314505b "$@"
  ;;
"$spec") docker start -- "$name" ;;
*)
  echo "container $name runs something else; remove it first: docker rm --force $name" >&2
  exit 1
  ;;
esac
