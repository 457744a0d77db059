#!/bin/sh
# Runs the tool of a driver ($1 and on) and prints what it prints, for 20 s at most: then it ends with 124. A tool that hangs in the
# kernel cannot be killed, and keeps its output open: nobody waits for either. (Some awks read to the end of a pipe.)
# Other scripts begin with it.
driver_tool() {
    {
        timeout -k 1 20 sh -c 'trap "kill -9 \$!; exit" TERM; "$@" & wait $!' sh "$@" </dev/null 2>/dev/null
        printf '\n== %s\n' $?
    } | while IFS= read -r line; do
        case $line in "== "*) exit "${line#== }" ;; esac
        printf '%s\n' "$line"
    done
}
