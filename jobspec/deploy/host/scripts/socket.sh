#!/bin/sh
# Prints which clients of engines a host has, `docker` and `podman`, one a line; then the Unix socket at which the engine listens,
# of which $1 may be the address. No socket where only a client knows: by a context, at an address of another kind, or because
# `docker` is Podman or somebody's script, which may mean anything. Before all, `limits` where processes of this machine may
# raise limits: the first one may have CAP_SYS_RESOURCE, which is bit 24.
if [ -r /proc/1/status ]; then
  while read -r name value; do
    case $name$value in CapBnd:*[13579bdf]??????) echo limits ;; esac
  done < /proc/1/status
fi
head="#!" url=$1
if cli=$(command -v docker) && read -r head < "$cli"; then
  case $(readlink -f -- "$cli") in
  */podman*) head="#!" cli= ;;
  *) echo docker ;;
  esac
fi
if command -v podman >/dev/null; then echo podman; else [ -n "$cli" ] || exit 0; fi
if [ -z "$cli" ]; then
  # There is only Podman, whose service has a socket for each user. DOCKER_HOST, which it does not read, may be Docker's.
  url=${url:-$CONTAINER_HOST}
  [ "$(id -u)" = 0 ] && own=/run/podman/podman.sock || own=${XDG_RUNTIME_DIR:-/run/user/$(id -u)}/podman/podman.sock
  url=${url:-unix://$own}
else
  case $head in "#!"*) exit 0 ;; esac
  url=${url:-$DOCKER_HOST}
fi
if [ -z "$url" ]; then
  url=unix:///var/run/docker.sock config=${DOCKER_CONFIG:-$HOME/.docker}/config.json
  [ -z "$DOCKER_CONTEXT" ] || exit 0
  [ ! -e "$config" ] || ! grep -q currentContext "$config" || exit 0
fi
case $url in unix:///*) [ ! -S "${url#unix://}" ] || printf '%s
' "${url#unix://}" ;; esac
