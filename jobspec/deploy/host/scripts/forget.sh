#!/bin/sh
# Removes the token $2 that facts.sh has left in the folder $1, and the folder if it is empty then. Prints nothing.
rm -f -- "$1/.check-$2"
rmdir -- "$1" 2>/dev/null
:
