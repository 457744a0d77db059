#!/bin/sh
# Becomes the launcher of one node of a job on this machine. Written by jobctl.
# `env` and not `export`: a shell takes some names (PPID, OPTIND, a.b) for its own, or not at all.
# shellcheck disable=SC1003,SC2016 # every value is meant literally
set -eu
dir=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)

exec env -- \
  LR=0.1 \
  MODE=no \
  'JOBCTL_LAUNCH={"node":0,"host":"gpu01","role":"trainer","nproc":2,"start":["python3","-m","torch.distributed.run","--nnodes",{"slot":"nnodes"},"--node-rank",{"slot":"node_rank"},"--nproc-per-node","2","--master-addr",{"slot":"master_addr"},"--master-port",{"slot":"master_port"},"--no-python",{"slot":"process"}],"command":["python3","-u","train.py","--epochs","3"],"env":[["JOBCTL_CHECKPOINT_KEEP","2"],["OMP_NUM_THREADS","1"]],"log_name":"workerlog","devices":["cpu:0","cpu:1"],"setup":[],"secrets":["PASS"],"workdir":null,"interface":null,"interface_env":["NCCL_SOCKET_IFNAME","GLOO_SOCKET_IFNAME"],"stop_grace":45.0,"hang_timeout":null,"etcd":{"endpoints":["10.0.0.1:2379","10.0.0.2:2379"],"prefix":"/jobctl/ada@desk/resnet","tls":null,"user":"ada","password":"PASS"}}' \
  python3 "$dir/launcher.py" \
  --control "$dir/run/control.json" \
  --secrets "$dir/secrets/secrets.json" \
  --dir "$dir/"node-0
