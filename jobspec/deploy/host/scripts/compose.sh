#!/bin/sh
# Runs `docker compose …` ($4 and on), with what its files ask of the host in the file $1, as sudo passes no variables on. $2
# are limits of containers, as NAME=VALUE with spaces between; $3 is who logs in here, UID:GID, where the engine calls them
# otherwise. Prints what Compose prints.
# Docker's own CLI would start the plugin twice, to ask what it is and to run it: three big programs, and more than half of
# the time. So the plugin is run as the program that it also is, found where the CLI looks for it, unless `docker` is Podman
# or somebody's script, which may mean anything. Podman (`podman --url URL compose …`) has no Compose of its own.
{
  echo "JOBCTL_USER=${3:-$(id -u):$(id -g)}"
  for limit in $2; do echo "$limit"; done
  [ ! -d /dev/infiniband ] || echo JOBCTL_INFINIBAND=/dev/infiniband
} > "$1" || exit
shift 3
head="#!"
if [ "$1 $2 $4" = "podman --url compose" ]; then
  head=podman DOCKER_HOST=$3; export DOCKER_HOST
  shift 2
elif [ "$1 $2" = "docker compose" ] && cli=$(command -v docker) && read -r head < "$cli"; then
  case $(readlink -f -- "$cli") in */podman*) head="#!" ;; esac
fi
case $head in "#!"*) exec "$@" ;; esac
for place in "${DOCKER_CONFIG:-$HOME/.docker}" /usr/local/lib/docker /usr/local/libexec/docker /usr/lib/docker /usr/libexec/docker; do
  plugin=$place/cli-plugins/docker-compose
  [ ! -x "$plugin" ] || { shift 2; exec "$plugin" "$@"; }
done
[ "$head" = podman ] || exec "$@"
shift 2
! command -v docker-compose >/dev/null || exec docker-compose "$@"
echo "there is no Compose plugin (docker-compose), which Podman needs for that" >&2
exit 1
