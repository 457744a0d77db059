#!/bin/sh
# Follows the job on a host for the supervisor that $4 names: what its launchers write into a pipe of ours, and a tick `t`
# of the host's own every second, go out; lines that come in, `NODE ANSWER`, go into files below `run/answers`, where nothing
# in a container can write, and to which nodes' folders have links. It ends with its input, or when nothing has come in for $6
# seconds. $1-$3: as for find.sh; $5 names the machine and the state directory of the supervisor. The host keeps that name;
# where another one is kept, only the line `own` replaces it: see `may_own` in liveness.py.
# Prints the work directory and the directory of what is the host's own, one a line; then `gone` where there is no job, or
# what lock.sh prints; then `before` with the supervisor that was here before; then what launchers write, and ticks.
# Once its output has ended, the lock is free: the ticker has its descriptor, too.
# The signal tells the ticker that something has come in; nothing does before its first tick. As a rule that is an answer to
# a launcher, which then needs no tick of the host's own.
# shellcheck source=find.sh
. ./find.sh
cut() { [ -e "$work/run/cut" ] && [ "$(cat -- "$work/run/cut")" -gt "$(date +%s)" ]; }
while cut; do sleep 1; done
printf '%s\n' "$work" "$own"
cd -- "$work" 2>/dev/null || { echo gone; exit 0; }
going() {
  holder=
  [ ! -s "$own/lock" ] || read -r holder < "$own/lock" || :
  case $holder in *'"command": "down"'*) ! flock -n "$own/lock" true ;; *) false ;; esac
} 2>/dev/null
! going || { echo gone; exit 0; }
me=$5 expiry=$6
set -- "$own/supervisor.lock" "$4" stay "$work"
# shellcheck source=lock.sh
. ./lock.sh
read -r before 2>/dev/null < "$own/supervisor" || before=
case $before in ""|"$me") printf '%s\n' "$me" > "$own/supervisor" ;; esac
chmod 1600 -- "$own/supervisor" # so that it stays, as in lock.sh
printf 'before %s\n' "$before"
umask 022; mkdir -p run/feeds run/answers
up=..; [ ! -d spare ] || up=../..  # where launchers of earlier versions see `run` from a node's folder in a container
for old in run/feeds/*; do [ -d "/proc/${old##*/}" ] || rm -f -- "$old"; done
feed=run/feeds/$$ mode=600; [ ! -g run/feeds ] || mode=620 # of the containers' group, to which `give` has given it
rm -f -- "$feed"; mkfifo -m $mode -- "$feed" || exit 1
! going || { rm -f -- "$feed"; unlock; exit 0; }
exec 3<>"$feed"
leave() { rm -f -- "$feed"; unlock; kill "$pump" "$ticker" 2>/dev/null; wait; exit; }
cat <&3 9>&- &
pump=$!
(
  quiet=0 heard=; trap 'quiet=0 heard=1' USR1
  echo t
  while sleep 1 9>&-; do
    quiet=$((quiet + 1))
    [ -p "$feed" ] || quiet=$expiry
    [ "$quiet" -lt "$expiry" ] || { rm -f -- "$feed"; unlock; kill "$pump"; kill -9 $$; exit; }
    [ "$heard" ] || cut || echo t
    heard=
  done
) >&3 &
ticker=$!
trap leave HUP TERM INT
while read -r node answer; do
  kill -USR1 "$ticker" 2>/dev/null || break
  [ "$node" != own ] || printf '%s\n' "$me" > "$own/supervisor"
  case $node in ""|*[!0-9]*) continue ;; esac
  [ -d "node-$node" ] || continue
  printf '%s\n' "$answer" > "run/answers/$node"
  [ -L "node-$node/answer" ] || ln -sfn -- "$up/run/answers/$node" "node-$node/answer"
done
leave
