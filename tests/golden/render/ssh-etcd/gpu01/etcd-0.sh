#!/bin/sh
# Starts the container of one node of a job with this host's Docker Engine. Written by jobctl.
# Paths of the job are relative to this file. Running it again changes nothing.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
image=quay.io/coreos/etcd:v3.5.21

set -- \
  --name jobctl-resnet-etcd-0 \
  --hostname resnet-etcd-0 \
  --add-host resnet-etcd-0:10.0.0.1 \
  --label jobctl.job=resnet \
  --label jobctl.node=etcd-0 \
  --label jobctl.role=etcd \
  --mount 'type=bind,"source='"$dir/"'etcd-0",target=/etcd' \
  --network host \
  --init \
  --restart unless-stopped \
  --stop-timeout 5 \
  --pull missing \
  --entrypoint '' \
  --env ETCD_DATA_DIR=/etcd/0a1b2c3d \
  --env ETCD_NAME=etcd-0 \
  --log-driver json-file \
  --log-opt max-file=3 \
  --log-opt max-size=10m \
  -- "${JOBCTL_IMAGE:-$image}" etcd

docker() { command ${JOBCTL_DOCKER:-docker} "$@"; } # jobctl sets it where the engine is reached in another way, or is Podman
name=jobctl-resnet-etcd-0
spec=48be7d6d9e0a9dd9a275418d68e2359b1276540b54a642557851e73996e19596
found=$(docker container inspect --format '{{ index .Config.Labels "jobctl.spec" }}' -- "$name" 2>/dev/null) || found=none
case $found in
none)
  mkdir -p -- "$dir/"etcd-0
  docker run --detach ${JOBCTL_SECURITY:+--security-opt "$JOBCTL_SECURITY"} --label jobctl.version=0.1.0 --label jobctl.spec=48be7d6d9e0a9dd9a275418d68e2359b1276540b54a642557851e73996e19596 "$@"
  ;;
"$spec") docker start -- "$name" ;;
*)
  echo "container $name runs something else; remove it first: docker rm --force $name" >&2
  exit 1
  ;;
esac
