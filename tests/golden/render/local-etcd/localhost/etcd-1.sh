#!/bin/sh
# Becomes a service of a job on this machine. Written by jobctl.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)

exec env -- \
  ETCD_NAME=etcd-1 \
  ETCD_DATA_DIR="$dir"/etcd-1/0a1b2c3d \
  etcd
