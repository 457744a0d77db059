#!/bin/sh
# Prints what waits for the partition for which job $1 waits: number, priority, partition, reason, a line each. Prints nothing if
# the job does not wait, or for several partitions, or if users do not see each other's jobs.
. ./plain.sh
set -eu
partition=$(plain squeue --noheader --jobs "$1" --states PENDING --format %P </dev/null)
case $partition in '' | *,*) exit ;; esac
config=$(plain scontrol show config </dev/null)
case $(printf '%s\n' "$config" | grep '^PrivateData') in *jobs*) exit ;; esac
plain squeue --noheader --states PENDING --partition "$partition" --format '%i|%Q|%P|%r' </dev/null
