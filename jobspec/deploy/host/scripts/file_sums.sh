#!/bin/sh
# Prints the digests of all files below $1, as sha256sum does.
cd -- "$1" && LC_ALL=C find . -type f -exec sha256sum -- {} +
