#!/bin/sh
# Closes the folder of secrets below $1, and makes it seen below the work directory $2, where the containers' mount is: where
# the secrets lie elsewhere, a link leads there. Prints nothing.
set -eu
chmod 700 "$1/secrets"
[ "$1" = "$2" ] || { rm -rf -- "$2/secrets"; ln -s -- "$1/secrets" "$2/secrets"; }
