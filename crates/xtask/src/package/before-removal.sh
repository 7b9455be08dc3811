#!/bin/sh
# "remove" from dpkg and 0 from rpm: not for another version.
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
    systemctl disable --now streamline.socket streamline.service || true
fi
