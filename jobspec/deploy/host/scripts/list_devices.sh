#!/bin/sh
# Prints the names of what the kernel has of each kind of devices, a line each. A host that has just booted has no device nodes of
# NVIDIA's before somebody asks for one.
cd /dev && ls -d -- * dri/* 2>/dev/null
cd /proc/driver/nvidia/gpus 2>/dev/null && ls -d -- *:*
:
