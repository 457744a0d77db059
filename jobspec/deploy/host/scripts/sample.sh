#!/bin/sh
# Prints how busy a host and its devices are. Parts begin with a line `== NAME`: stat, meminfo and loadavg have lines of /proc;
# nvidia, rocm and npu have what the drivers' tools print, where there are such tools. The last line is `== end`.
# With `answer` as $1 it does so for each line of its input, in one piece, until that ends.
# shellcheck source=driver_tool.sh
. ./driver_tool.sh
PATH="$PATH:/usr/local/sbin:/opt/rocm/bin"
part() { printf '== %s\n' "$1"; }
sample() {
    part stat
    head -n 1 /proc/stat
    part meminfo
    grep -E '^Mem(Total|Available):' /proc/meminfo
    part loadavg
    cat /proc/loadavg
    if command -v nvidia-smi >/dev/null; then
        part nvidia
        about=index,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu
        ecc=ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total
        driver_tool nvidia-smi "--query-gpu=$about,$ecc" --format=csv,noheader,nounits
    fi
    if command -v rocm-smi >/dev/null; then
        part rocm
        driver_tool rocm-smi --showproductname --showuse --showmeminfo vram --showpower --showtemp --json
    fi
    if command -v npu-smi >/dev/null; then
        part npu
        driver_tool npu-smi info
    fi
    part end
}
if [ "${1-}" = answer ]; then
    while read -r _; do
        said=$(sample 2>/dev/null </dev/null)
        printf '%s\n' "$said"
    done
else
    sample
fi
