#!/bin/sh
# Starts the container of one node of a job with this host's Docker Engine. Written by jobctl.
# Paths of the job are relative to this file. Running it again changes nothing.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
image=ms:1

set -- \
  --name jobctl-lenet-0 \
  --hostname lenet-0 \
  --add-host lenet-0:10.0.0.1 \
  --label jobctl.job=lenet \
  --label jobctl.node=0 \
  --label jobctl.role=trainer \
  --label jobctl.owner=ada@desk \
  --label jobctl.devices=npu:0,npu:1 \
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
  --mount type=bind,source=/mnt/lenet,target=/mnt/lenet \
  --mount type=bind,source=/usr/local/Ascend/driver,target=/usr/local/Ascend/driver,readonly \
  --mount type=bind,source=/usr/local/dcmi,target=/usr/local/dcmi,readonly \
  --mount type=bind,source=/usr/local/bin/npu-smi,target=/usr/local/bin/npu-smi,readonly \
  --mount type=bind,source=/etc/ascend_install.info,target=/etc/ascend_install.info,readonly \
  --mount type=bind,source=/etc/hccn.conf,target=/etc/hccn.conf,readonly \
  --device /dev/davinci0 \
  --device /dev/davinci1 \
  --device /dev/davinci_manager \
  --device /dev/devmm_svm \
  --device /dev/hisi_hdc \
  --ulimit "memlock=${JOBCTL_MEMLOCK:--1}:${JOBCTL_MEMLOCK:--1}" \
  --ulimit "nice=${JOBCTL_NICE:-0}:${JOBCTL_NICE:-0}" \
  --shm-size 68719476736 \
  --log-driver json-file \
  --log-opt max-file=3 \
  --log-opt max-size=10m \
  --workdir /workspace \
  --env 'JOBCTL_LAUNCH={"node":0,"host":"gpu01","role":"trainer","nproc":2,"start":["python3","-m","mindspore.parallel.cluster.run","--worker_num",{"slot":"trainer_count"},"--local_worker_num","2","--node_rank",{"slot":"node_rank"},"--master_addr",{"slot":"scheduler_address"},"--master_port",{"slot":"scheduler_port"},"--cluster_time_out","600","--join","True","--log_dir",{"slot":"scratch"},"python3",{"slot":"process_script"}],"command":["python3","-u","train.py"],"env":[["JOBCTL_CHECKPOINT_KEEP","2"],["MS_ROLE","MS_WORKER"],["MS_WORKER_NUM",{"slot":"trainer_count"}],["MS_SCHED_HOST",{"slot":"scheduler_address"}],["MS_SCHED_PORT",{"slot":"scheduler_port"}],["MS_TOPO_TIMEOUT","600"],["MS_HEARTBEAT_RETRY_TIMEOUT","600"],["MS_NODE_TIMEOUT","31536000"],["MS_RETRY_INTERVAL_LOWER","1"],["MS_RETRY_INTERVAL_UPPER","1"],["MS_WORKER_IP",{"slot":"address"}],["HCCL_IF_IP",{"slot":"address"}]],"log_name":"workerlog","devices":["npu:0","npu:1"],"setup":[],"secrets":[],"workdir":"/workspace","interface":null,"interface_env":["HCCL_SOCKET_IFNAME"],"stop_grace":45.0,"hang_timeout":null,"rank_env":["RANK_ID","DEVICE_ID"],"scrub":["MS_ROLE","MS_NODE_ID","MS_WORKER_NUM","MS_SERVER_NUM","MS_SCHED_HOST","MS_SCHED_PORT","MS_WORKER_IP","MS_ENABLE_RECOVERY","MS_RECOVERY_PATH","RANK_ID","RANK_SIZE","RANK_TABLE_FILE","DEVICE_ID"],"process_env":[["MS_NODE_ID",{"slot":"rank"}],["RANK_ID",{"slot":"rank"}],["RANK_SIZE",{"slot":"trainer_count"}],["DEVICE_ID",{"slot":"local_rank"}]],"apart":true,"elsewhere":["MS_ROLE","MS_SCHED"],"standby":{"imports":[],"launcher":"","off":"msrun starts its processes in a way of its own","changing":[],"meets":[]}}' \
  -- "${JOBCTL_IMAGE:-$image}" python3 /jobctl/launcher.py --control /jobctl/run/control.json --dir /jobctl/node
[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"

docker() { command ${JOBCTL_DOCKER:-docker} "$@"; } # jobctl sets it where the engine is reached in another way, or is Podman
name=jobctl-lenet-0
spec=5125abe3448784c09ddb60a47347cb7894c5b652ff805a6222dfc149378a5222
found=$(docker container inspect --format '{{ index .Config.Labels "jobctl.spec" }}' -- "$name" 2>/dev/null) || found=none
case $found in
none)
  mkdir -p -- "$dir/"node-0
  docker run --detach ${JOBCTL_SECURITY:+--security-opt "$JOBCTL_SECURITY"} --label jobctl.version=1.0 --label jobctl.inputs=aeac0ccefe4b8db80d0c6008d0480879f39da03412a907c4fb20f1364eaec8e0 --label jobctl.spec=5125abe3448784c09ddb60a47347cb7894c5b652ff805a6222dfc149378a5222 "$@"
  ;;
"$spec") docker start -- "$name" ;;
*)
  echo "container $name runs something else; remove it first: docker rm --force $name" >&2
  exit 1
  ;;
esac
