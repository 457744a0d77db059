#!/bin/sh
# Prints control file, ledger and the launchers' reports of the work directory $1, as a tar; and to stderr how much room is
# left there: blocks, those free for root and for others, inodes, those free; and whether we are root. $2: the directory of what is the
# host's own. It ends with 76 where a supervisor holds its lock there.
work=$1 own=$2
cd -- "$work" 2>/dev/null || exit 0
set -- . run/*.json node-*/report.json spare/report.json
for node in spare/ node-*/; do set -- "$@" "$node"; done
tar --no-recursion -cf - -- "$@" 2>/dev/null
stat -f -c 'room %b %f %a %c %d' . >&2 2>/dev/null; [ ! -w / ] || echo 'room of root' >&2
# SUPERVISED in work_reader.py
[ ! -s "$own/supervisor.lock" ] || flock -n "$own/supervisor.lock" true 2>/dev/null || exit 76
:
