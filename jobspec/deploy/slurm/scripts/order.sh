#!/bin/sh
# Replaces the order in the job's directory $1 by what stands on stdin, and has the batch script of job $2 read it.
# Prints nothing. Without a signal there is no order: nobody follows one later that has failed. Ends with 77 where the directory
# is not ours.
. ./plain.sh
# shellcheck source=../../host/scripts/mine.sh
. ../../host/scripts/mine.sh
set -eu; umask 022
mine "$1" || exit 77
cd -- "$1"
cat > run/order.new
mv -f -- run/order.new run/order.json
plain scancel --batch --signal=USR2 "$2" || { code=$?; rm -f run/order.json; exit "$code"; }
