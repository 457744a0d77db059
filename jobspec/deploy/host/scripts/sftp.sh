#!/bin/sh
# Becomes the SFTP server of a container's image. Where there is none, it prints that on stderr, and ends with 127.
for at in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec; do
    if [ -x "$at/sftp-server" ]; then
        exec "$at/sftp-server"
    fi
done
echo 'jobctl: the image has no SFTP server (openssh-sftp-server in Debian)' >&2
exit 127
