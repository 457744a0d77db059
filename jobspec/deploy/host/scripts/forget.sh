#!/bin/sh
# Removes the token $2 that facts.sh has left in the folder $1, and the folder if it is empty then and jobctl's. Prints nothing.
# shellcheck source=tidy.sh
. ./tidy.sh
rm -f -- "$1/.check-$2"
tidy "$1"
