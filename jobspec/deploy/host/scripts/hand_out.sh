#!/bin/sh
# Has a container of image $3 hand that image on: program $5 runs there with the Python called $4. The container is called $1, and is
# one of job $2. The rest is how `docker` is called. The first line of stdin is the program's order. Prints what the program prints.
name=$1 job=$2 image=$3 python=$4 program=$5; shift 5
IFS= read -r order
{ printf '%s\n' "$order"; exec "$@" save "$image" < /dev/null; } |
  "$@" run -i --rm --pull never --network host --name "$name" --label "jobctl.job=$job" --label jobctl.role=root \
    --entrypoint "$python" "$image" -c "$program"
