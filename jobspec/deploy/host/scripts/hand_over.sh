#!/bin/sh
# Writes two files from stdin into the folder $1, the first $2 bytes and the following $3, each whole and in this order; none of
# no bytes. Then stays until launchers have started what they run, $4 twentieths of a second at most: that spares a caller
# further looks. Prints nothing.
set -eu; umask 077
[ -d "$1" ] || { echo "files of the job are not there any more" >&2; exit 1; }
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
