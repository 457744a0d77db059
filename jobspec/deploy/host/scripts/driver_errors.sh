#!/bin/sh
# Prints the lines of the kernel's log in which NVIDIA's driver tells of errors, the newest last. Prints nothing where this user
# may not read that log.
{ dmesg 2>/dev/null || journalctl --dmesg --quiet --no-pager 2>/dev/null; } | grep 'NVRM: Xid (' | tail -n 500
:
