#!/bin/sh
# Finds the work directory (`~` is the home), and where what must be the host's own lies.
# Other scripts begin with it. $1: the directory of the hosts file, $2: the folder of the host, $3: the job.
# Prints nothing; sets `work`, `own`, and `at`, the part of `work` that is there.
# shellcheck disable=SC2034  # other scripts read them
# shellcheck disable=SC2088  # the hosts file has a `~`, which is meant literally here
case $1 in
"~") work=$HOME ;;
"~/"*) work=$HOME/${1#"~/"} ;;
/*) work=$1 ;;
*) work=$HOME/$1 ;;
esac
at=$work
while [ ! -d "$at" ]; do at=/${at#/}; at=${at%/*}; at=${at:-/}; done
work=$work/$2/$3
case $(stat -f -c %T -- "$at" 2>/dev/null) in
""|ext*|xfs|btrfs|zfs|f2fs|jfs|reiserfs|overlay*|tmpfs|ramfs) own=$work ;;
*) own=/var/tmp/jobctl-$(id -u)/$2/$3 ;;
esac
