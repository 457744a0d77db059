#!/bin/sh
# Becomes the launcher of one node on a machine of the allocation. Written by jobctl.
# $1: `start`, or `end` after the launcher has ended; $2: the node; $3: this machine's address; $4: what is this machine's own.
# `env` and not `export`: a shell takes some names (PPID, OPTIND, a.b) for its own, or not at all.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
[ "$1" = start ] || exit 0
own=$4
shift 5
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
cd -- /specs

exec env -- \
  JOBCTL_JOB=resnet \
  python3 "$dir/allocation.py" inside --look --work "$dir" --own "$own" -- "$@"
