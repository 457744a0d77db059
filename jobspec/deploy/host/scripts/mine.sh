#!/bin/sh
# Says whether what is below the directory $1, of what is the host's own, is ours; if not, on stderr, why. Prints nothing.
# Other scripts begin with it, with a umask that lets nobody else in.
# What find.sh names below /var/tmp, anybody may have made before: who owns it would have the lock and the secrets.
mine() {
  top=/var/tmp/jobctl-$(id -u)
  case $1 in "$top"/*) ;; *) return 0 ;; esac
  mkdir -- "$top" 2>/dev/null
  # shellcheck disable=SC2015,SC3067  # dash and busybox have -O too
  [ ! -L "$top" ] && [ -O "$top" ] || { echo "Permission denied: $top belongs to somebody else" >&2; return 1; }
}
