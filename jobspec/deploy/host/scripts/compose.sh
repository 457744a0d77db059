#!/bin/sh
# Runs `docker compose …` ($3 and on), with what its files ask of the host in the file $1, as sudo passes no variables on; $2 is the
# limit on locked memory, if it has to be lowered. Prints what Compose prints.
# Docker's own CLI would start the plugin twice, to ask what it is and to run it: three big programs, and more than half of
# the time. So the plugin is run as the program that it also is, found where the CLI looks for it, unless `docker` is Podman
# or somebody's script, which may mean anything.
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
