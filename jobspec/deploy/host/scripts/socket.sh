#!/bin/sh
# Prints the Unix socket at which `docker` finds its engine, of which $1 may be the address. Nothing where only `docker` knows: by
# a context, at an address of another kind, or because it is Podman or somebody's script, which may mean anything.
cli=$(command -v docker) && read -r head < "$cli" || exit 0
case $head in "#!"*) exit 0 ;; esac
case $(readlink -f -- "$cli") in */podman*) exit 0 ;; esac
url=${1:-$DOCKER_HOST}
if [ -z "$url" ]; then
  url=unix:///var/run/docker.sock config=${DOCKER_CONFIG:-$HOME/.docker}/config.json
  [ -z "$DOCKER_CONTEXT" ] || exit 0
  [ ! -e "$config" ] || ! grep -q currentContext "$config" || exit 0
fi
case $url in unix:///*) [ ! -S "${url#unix://}" ] || printf '%s
' "${url#unix://}" ;; esac
