#!/bin/sh
# Prints `here` if version $2 of data is below $1, which counts as a use of it; nothing otherwise.
[ ! -d "$1/$2" ] || { touch -- "$1/$2"; echo here; }
