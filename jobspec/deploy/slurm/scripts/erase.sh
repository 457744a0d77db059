#!/bin/sh
# Removes the job's directory $1, and the folder above it if that is empty then: it is jobctl's too.
# Prints nothing.
[ ! -d "$1" ] || rm -rf -- "$1" || exit
rmdir -- "${1%/*}" 2>/dev/null || :
