#!/bin/sh
# Prints what the allocation has written of the job's story, from byte $2 on. $1: the job's directory.
[ -f "$1/run/events.jsonl" ] || exit 0
exec tail -c "+$(($2 + 1))" -- "$1/run/events.jsonl"
