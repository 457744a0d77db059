#!/bin/sh
# Prints the digest of the first $3 bytes of file $2 below $1.
cd -- "$1" && head -c "$3" -- "./$2" | sha256sum
