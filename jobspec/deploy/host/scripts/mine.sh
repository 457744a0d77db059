#!/bin/sh
# Says whether the folder $1 of a job and that of the host, which it is in, are ours, as far as they are there; if not, on
# stderr, why. Prints nothing, and sets `nothing` where not even the folder of the host is there. Other scripts begin with it.
# `dir=` may be anything, as a link to a bigger disk. What is below it, in /scratch say, or below /var/tmp, anybody may have made
# before: who owns it would have the lock and the secrets, and by a link we would remove other files of the user.
# Nobody else can replace a folder that is ours, where `dir=` is not open to all, or sticky as /scratch is.
mine() {
  uid=$(id -u)
  case ${1##*/} in .run-*) mine "${1%/*}" || return ;; esac # of `jobctl run`, in the folder of the job
  case $1 in
  "/var/tmp/jobctl-$uid"/*) owned "/var/tmp/jobctl-$uid" || return ;;
  esac
  owned "${1%/*}" || return
  # shellcheck disable=SC2034  # other scripts read it
  nothing=$missing
  owned "$1"
}
owned() {
  missing=
  is=$(LC_ALL=C stat -c %f:%u -- "$1" 2>&1) || case $is in
  *": No such file or directory") missing=1; return 0 ;;
  *) echo "$is" >&2; return 1 ;;
  esac
  case $is in
  4???:"$uid"|4???:0) return 0 ;;
  4???:*) [ "$(called "$1")" != "${is#*:}" ] || return 0; echo "Permission denied: $1 belongs to somebody else" >&2 ;;
  *) echo "Permission denied: $1 is a link, or no directory" >&2 ;;
  esac
  return 1
}
# Prints the number by which the file system in the folder $1 calls us: that of a network may squash root. It is that of a file
# which nobody else can have put there: the name is new, and the file is not looked at by its name.
called() {
  new=$(mktemp -u -- "$1/.jobctl.XXXXXX") && (set -C; stat -Lc %u /proc/self/fd/8 8> "$new") 2>/dev/null; rm -f -- "$new"
}
