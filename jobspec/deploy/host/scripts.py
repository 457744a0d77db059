"""What is run on hosts: small scripts for any POSIX shell with coreutils, tar and util-linux, and for Python in containers.

Values reach them as arguments, never as text of the script.
"""

from __future__ import annotations

from jobctl.jobspec.deploy.model.liveness import EXPIRY

SUPERVISED = 76

# Finds the work directory (`~` is the home), and where what must be the host's own lies.
FIND = """\
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
"""

# Locks the file $1 in the name of $2 (`break` in $3: whoever has it), and says `held`; or `taken`, with the holder's own
# words and the age of the lock, and ends; or `failed`, and why. A file that was replaced meanwhile (`down`, `break`) is tried again. With
# `stay` in $3 nothing is created for a job that is down: where its folder is not there, it is `gone`.
LOCK = """\
umask 077
[ "$3" = stay ] || why=$({ mkdir -p -- "${1%/*}" && : >> "$1"; } 2>&1) || { echo "failed $why"; exit 1; }
[ "$3" != break ] || rm -f -- "$1"
ours() { [ /proc/self/fd/9 -ef "$1" ]; }
while :; do
  [ "$3" != stay ] || [ -d "${1%/*}" ] || { echo gone; exit 0; }
  exec 9>>"$1" || exit 1
  flock -n 9 || { printf 'taken %s ' $(( $(date +%s) - $(stat -c %Y -- "$1") )); cat -- "$1"; echo; exit 0; }
  ours "$1" && break
done
printf '%s' "$2" > "$1"
lock=$1
unlock() { ! ours "$lock" || : > "$lock"; }
echo held
"""

# Follows the job on a host for the supervisor that $4 names: what its launchers write into a pipe of ours, and a tick `t`
# of the host's own every second, go out; lines that come in, `NODE ANSWER`, go into the nodes' files `answer`. Ends with its
# input, or when nothing has come in for EXPIRY seconds. $5 names the machine and state directory of the supervisor; the one
# that was here before is told. A host without a work directory of the job is `gone`. The signal tells the ticker that
# something has come in; nothing does before its first tick. As a rule that is an answer to a launcher: who has just heard
# one needs no tick of the host's own.
WATCH = (
    FIND
    + """\
cut() { [ -e "$work/run/cut" ] && [ "$(cat -- "$work/run/cut")" -gt "$(date +%s)" ]; }
while cut; do sleep 1; done
printf '%s\\n' "$work" "$own"
cd -- "$work" 2>/dev/null || { echo gone; exit 0; }
going() {
  holder=
  [ ! -s "$own/lock" ] || read -r holder < "$own/lock" || :
  case $holder in *'"command": "down"'*) ! flock -n "$own/lock" true ;; *) false ;; esac
} 2>/dev/null
! going || { echo gone; exit 0; }
me=$5
set -- "$own/supervisor.lock" "$4" stay
"""
    + LOCK
    + """\
read -r before 2>/dev/null < "$own/supervisor" || before=
printf '%s\\n' "$me" > "$own/supervisor"
printf 'before %s\\n' "$before"
umask 022; mkdir -p run/feeds
for old in run/feeds/*; do [ -d "/proc/${old##*/}" ] || rm -f -- "$old"; done
feed=run/feeds/$$; rm -f -- "$feed"; mkfifo -m 620 -- "$feed" || exit 1
! going || { rm -f -- "$feed"; unlock; exit 0; }
exec 3<>"$feed"
leave() { rm -f -- "$feed"; unlock; kill "$pump" "$ticker" 2>/dev/null; exit; }
cat <&3 9>&- &
pump=$!
(
  quiet=0 heard=; trap 'quiet=0 heard=1' USR1
  echo t
  while sleep 1 9>&-; do
    quiet=$((quiet + 1))
    [ -p "$feed" ] || quiet=EXPIRY
    [ "$quiet" -lt EXPIRY ] || { rm -f -- "$feed"; unlock; kill "$pump"; kill -9 $$; exit; }
    [ "$heard" ] || cut || echo t
    heard=
  done
) >&3 &
ticker=$!
trap leave HUP TERM INT
while read -r node answer; do
  kill -USR1 "$ticker" 2>/dev/null || break
  [ ! -d "node-$node" ] || printf '%s\\n' "$answer" > "node-$node/answer"
done
leave
""".replace("EXPIRY", str(EXPIRY))
)
# Plays for $2 seconds that the host is lost, below the work directory $1; sooner with 0.
CUT = 'echo $(($(date +%s) + $2)) > "$1/run/.cut" && mv -f -- "$1/run/.cut" "$1/run/cut"\n'
PLACE = FIND + 'printf \'%s\\n\' "$work" "$own"\n'
# Prints control file, ledger and the launchers' reports of the directories $1 and $2, as a tar; and to stderr how much room
# is left there: blocks, those free for root and for others, inodes, those free; and whether we are root.
OBSERVE = f"""\
work=$1 own=$2
cd -- "$work" 2>/dev/null || exit 0
set -- . run/*.json node-*/report.json
for node in node-*/; do set -- "$@" "$node"; done
tar --no-recursion -cf - -- "$@" 2>/dev/null
stat -f -c 'room %b %f %a %c %d' . >&2 2>/dev/null; [ ! -w / ] || echo 'room of root' >&2
[ ! -s "$own/supervisor.lock" ] || flock -n "$own/supervisor.lock" true 2>/dev/null || exit {SUPERVISED}
:
"""
FIND_AND_OBSERVE = FIND + 'set -- "$work" "$own"\n' + OBSERVE  # of directories that are not known yet

# Starts, and stays until the launcher reports, 5 s at most: it saves a look or two, and is no error if it does not.
START = """\
report=$1; shift; "$@" || exit
tries=100 said=
while [ $tries -gt 0 ]; do
  [ ! -e "$report" ] || [ -r "$report" ] || exit 0
  [ ! -s "$report" ] || read -r said < "$report"
  case $said in ""|*'"state": "launching"'*) ;; *) exit 0 ;; esac
  sleep 0.05; tries=$((tries - 1))
done
"""

# Prints the Unix socket at which `docker` finds its engine, of which $1 may be the address. Nothing where only it knows: by a
# context, at an address of another kind, or because it is Podman or somebody's script, which may mean anything.
SOCKET = """\
cli=$(command -v docker) && read -r head < "$cli" || exit 0
case $head in "#!"*) exit 0 ;; esac
case $(readlink -f -- "$cli") in */podman*) exit 0 ;; esac
url=${1:-$DOCKER_HOST}
if [ -z "$url" ]; then
  url=unix:///var/run/docker.sock config=${DOCKER_CONFIG:-$HOME/.docker}/config.json
  [ -z "$DOCKER_CONTEXT" ] || exit 0
  [ ! -e "$config" ] || ! grep -q currentContext "$config" || exit 0
fi
case $url in unix:///*) [ ! -S "${url#unix://}" ] || printf '%s\n' "${url#unix://}" ;; esac
"""

# Runs `docker compose …`, with what its files ask of the host in the file $1, as sudo passes no variables on; $2 is the limit on
# locked memory, if it has to be lowered. Docker's own CLI would start the plugin twice,
# to ask what it is and to run it: three big programs, and more than half of the time. So the plugin is run as the program
# that it also is, found where the CLI looks for it, unless `docker` is Podman or somebody's script, which may mean anything.
COMPOSE = """\
{
  echo "JOBCTL_USER=$(id -u):$(id -g)"
  [ -z "$2" ] || echo "JOBCTL_MEMLOCK=$2"
  [ ! -d /dev/infiniband ] || echo JOBCTL_INFINIBAND=/dev/infiniband
} > "$1" || exit
shift 2
if [ "$1 $2" = "docker compose" ] && cli=$(command -v docker) && read -r head < "$cli"; then
  case $(readlink -f -- "$cli") in */podman*) head="#!" ;; esac
  for place in "${DOCKER_CONFIG:-$HOME/.docker}" /usr/local/lib/docker /usr/local/libexec/docker /usr/lib/docker /usr/libexec/docker; do
    plugin=$place/cli-plugins/docker-compose
    case $head in "#!"*) break ;; esac
    [ ! -x "$plugin" ] || { shift 2; exec "$plugin" "$@"; }
  done
fi
exec "$@"
"""

# Writes two files from stdin, the first $2 bytes and the following $3, each whole and in this order; none of no bytes. Then
# stays until launchers have started what they run, $4 twentieths of a second at most: that spares who wants to know looks.
HAND_OVER = """\
set -eu; umask 077
cd -- "$1"; new=.jobctl.$$; trap 'rm -f -- "$new".*' EXIT
cat > "$new.all"
[ "$(wc -c < "$new.all")" -eq $(($2 + $3)) ] || { echo "the connection broke off" >&2; exit 1; }
if [ "$2" -gt 0 ]; then head -c "$2" "$new.all" > "$new.ledger"; mv -f -- "$new.ledger" ledger.json; fi
if [ "$3" -gt 0 ]; then umask 022; tail -c "$3" "$new.all" > "$new.control"; mv -f -- "$new.control" control.json; fi
waits() {
  [ ! -s "$1" ] || read -r said < "$1" || :
  case $said in *'"state": "waiting"'*|*'"state": "setup"'*) ;; *) false ;; esac
}
tries=$4 said=
for file in ../node-*/report.json; do
  while [ "$tries" -gt 0 ] && waits "$file"; do sleep 0.05; tries=$((tries - 1)); done
done
"""

# Results are files of the newest version of the code; they lie with the other outputs then.
COLLECT = """\
cd -- "$1" 2>/dev/null || exit 0
set -- "$PWD" "$(ls -t code 2>/dev/null | head -n 1)"
if [ -s .results ] && mkdir -p outputs; then
  tar -C "code/$2" --null -T "$1/.results" -cf - 2>/dev/null | tar -C outputs -xpf - 2>/dev/null
fi
set --
for part in node-*/logs node-*/processes outputs; do [ ! -e "$part" ] || set -- "$@" "$part"; done
[ $# -eq 0 ] || exec tar -cf - -- "$@"
"""

# The containers' mount is below the work directory; where the secrets lie elsewhere, a link leads there.
LINK_SECRETS = """\
set -eu
chmod 700 "$1/secrets"
[ "$1" = "$2" ] || { rm -rf -- "$2/secrets"; ln -s -- "$1/secrets" "$2/secrets"; }
"""

# Unpacks the tar on stdin (all $2 bytes of it, or nothing) beside the directory $1, then moves its files there.
SEND = """\
set -eu; umask 022
work=$1 size=$2 stale=$3; shift 3
[ -z "$stale" ] || [ ! -e "$stale" ] || rm -rf -- "$stale" "$work/secrets"
if [ ! -d "$work" ]; then
  top=${work%/*/*}
  [ -d "$top" ] || (umask 077; mkdir -p -- "$top")
  mkdir -p -- "$work"
fi
chmod 711 "$work"; cd -- "$work"
new=$work/.jobctl.$$; trap 'rm -rf -- "$new"' EXIT
[ ! -e "$new" ] || rm -rf -- "$new"
mkdir -p -- "$new" "$@"
cat > "$new/.tar"
[ "$(wc -c < "$new/.tar")" -eq "$size" ] || { echo "the connection broke off" >&2; exit 1; }
tar -C "$new" -xpf "$new/.tar"
set -- "$new"/*; [ ! -e "$1" ] || mv -f -- "$@" .
"""

# Ends with 127 if there is no command $1.
EXISTS = '[ -e "$1" ] || command -v "$1" >/dev/null || exit 127'

# Removes the work directory $1 and the directory $2 of what is the host's own, and the folders above them that are empty
# then. Whoever follows the job from elsewhere leaves first. The lock goes last, and its folder is moved away with it: until
# then all who want the lock see that it is taken, and from then on that there is no job.
ERASE = """\
rm -f -- "$1"/run/feeds/*
tries=50
while [ $tries -gt 0 ] && [ -e "$2/supervisor.lock" ] && ! flock -n "$2/supervisor.lock" true; do
  sleep 0.1; tries=$((tries - 1))
done
empty() {
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    [ "${entry##*/}" = lock ] || rm -rf -- "$entry" || return
  done
}
for top do
  [ ! -d "$top" ] || empty "$top" || exit
done
for top do
  gone=${top%/*}/.${top##*/}
  if [ -d "$top" ]; then mv -- "$top" "$gone.$$" || exit; fi
  rm -rf -- "$gone".* || exit
  rmdir -p -- "${top%/*}" 2>/dev/null || :
done
"""

# Python, in a container: removes all that is in the folders below /at, but the lock, which `down` holds.
EMPTY = """\
import os, shutil
for top in os.scandir("/at"):
    for entry in os.scandir(top.path):
        if entry.name != "lock":
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
"""

# Python, in a container that has the work directory and where the host's own things lie: lets the user of the job's
# containers, uid and gid, write where they have to; the directories stay those of the user who made them.
GIVE = """\
import glob, os, sys
uid, gid = int(sys.argv[1]), int(sys.argv[2])
def share(path, folder, file):
    if not os.path.islink(path):
        os.chown(path, -1, gid)
        os.chmod(path, os.stat(path).st_mode | (folder if os.path.isdir(path) else file))
for top in glob.glob("/at/0/node-*/"):
    share(top.rstrip("/"), 0o2070, 0o060)
if os.path.isdir("/at/0/run/feeds"):
    share("/at/0/run/feeds", 0o2050, 0)
for top in ("/at/0/code", "/at/0/outputs"):
    for folder, folders, files in os.walk(top):
        for name in ["", *folders, *files]:
            share(os.path.join(folder, name).rstrip("/"), 0o2070, 0o060)
for secret in glob.glob("/at/*/secrets/secrets.json"):
    if not os.path.islink(os.path.dirname(secret)):
        share(os.path.dirname(secret), 0o010, 0)
        os.chown(secret, uid, gid)
"""
