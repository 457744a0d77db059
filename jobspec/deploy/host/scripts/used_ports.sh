#!/bin/sh
# Prints the kernel's tables of TCP ports, an empty line, then the control files of the other jobs below the folder $1 than $2.
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; echo; cd -- "$1" 2>/dev/null || exit 0
for job in */; do [ "$job" = "$2/" ] || cat -- "$job/run/control.json" 2>/dev/null; done; :
