#!/bin/sh
# Prints how many kilobytes are free where $1 is, nothing if that is not known. The names of the file system and of its place, on
# both sides of the numbers, may have spaces in them.
# Other scripts begin with it.
kilobytes() { df -Pk -- "$1" 2>/dev/null | sed -n '2s/^.* \(-*[0-9][0-9]*\)  *[0-9][0-9]*% .*$/\1/p'; }
