#!/bin/sh
# Runs the shell command $3 of a client: the other end of its scp. Where the image has no scp, the Python $1 runs the
# program $2 in its place. It prints nothing itself.
if ! command -v scp >/dev/null 2>&1 && command -v "$1" >/dev/null 2>&1; then
    python="$1" program="$2"
    scp() {
        "$python" -c "$program" "$@"
    }
fi
eval "$3"
