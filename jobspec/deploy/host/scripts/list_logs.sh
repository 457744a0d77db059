#!/bin/sh
# Prints `SIZE MTIME PATH`, a line for each file of logs and of processes below the work directory $1.
cd -- "$1" 2>/dev/null || exit 0
for node in node-*; do
  find "$node/logs" "$node/processes" -type f -exec stat -c '%s %Y %n' -- {} + 2>/dev/null
done; :
