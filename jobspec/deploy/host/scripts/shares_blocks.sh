#!/bin/sh
# Prints `here` if a copy of file $1 below the folder $2 takes no room: its file system lets files share their blocks.
at=$2
while [ ! -d "$at" ]; do at=${at%/*}; at=${at:-/}; done
new=$(mktemp -- "$at/.copy.XXXXXX") || exit 0
trap 'rm -f -- "$new"' EXIT
! cp --reflink=always -- "$1" "$new" 2>/dev/null || echo here
