#!/bin/sh
# Prints what a host is like, as lines KEY VALUE. $1-$3: as for find.sh; $4: this check's token; then paths that should be
# there, `-`, and names to resolve. It leaves a file `.check-TOKEN` behind (see visible.sh).
# shellcheck source=find.sh
. ./find.sh
# shellcheck source=kilobytes.sh
. ./kilobytes.sh
# shellcheck source=driver_tool.sh
. ./driver_tool.sh
token=$4 top=$(dirname -- "$(dirname -- "$work")"); shift 4
find "$top" -maxdepth 1 -name '.check-*' -mmin +60 -exec rm -f -- {} + 2>/dev/null
echo "now $(date +%s.%N)"
echo "work $work"
echo "own $own"
echo "uid $(id -u)"
echo "boot $(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
echo "free $(kilobytes "$at")"
awk '/^MemTotal|^MemAvailable/ { print "memory-" $1, $2 }' /proc/meminfo
if (umask 077; mkdir -p -- "$top") 2>/dev/null && : > "$top/.check-$token" 2>/dev/null; then echo "writable yes"; fi
if command -v ip >/dev/null; then
  ip -o link | awk '{ name = $2; sub(/[@:].*/, "", name); for (i = 3; i < NF; i++) if ($i == "mtu") print "mtu", name, $(i + 1) }'
else
  for name in /sys/class/net/*; do echo "mtu $(basename -- "$name") $(cat -- "$name/mtu" 2>/dev/null)"; done
fi
ip -o addr 2>/dev/null | awk '{ sub("/.*", "", $4); print "address", $4, $2 }'
command -v flock >/dev/null && command -v timeout >/dev/null && echo "tools yes"
[ -d /dev/infiniband ] && echo "infiniband yes"
while [ $# -gt 0 ] && [ "$1" != - ]; do [ -e "$1" ] && echo "there $1"; shift; done
[ $# -eq 0 ] || shift
for name do echo "name $name $(getent ahosts "$name" 2>/dev/null | awk 'NR == 1 { print $1 }')"; done
if command -v nvidia-smi >/dev/null; then
  for about in gpu=index,uuid compute-apps=gpu_uuid,pid,process_name; do
    said=$(driver_tool nvidia-smi "--query-$about" --format=csv,noheader) || [ $? -ne 124 ] || { echo "hangs nvidia-smi"; break; }
    printf '%s\n' "$said" | awk -F', ' -v key="${about%%=*}" 'NF { $1 = $1; print key, $0 }'
  done
fi
:
