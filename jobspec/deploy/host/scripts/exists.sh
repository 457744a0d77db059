#!/bin/sh
# Ends with 127 if there is no command $1, in a container. Prints nothing.
[ -e "$1" ] || command -v "$1" >/dev/null || exit 127
