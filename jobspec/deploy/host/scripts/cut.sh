#!/bin/sh
# Plays for $2 seconds that the host is lost, for the job in the work directory $1; 0 ends it. Prints nothing.
echo $(($(date +%s) + $2)) > "$1/run/.cut" && mv -f -- "$1/run/.cut" "$1/run/cut"
