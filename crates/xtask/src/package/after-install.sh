#!/bin/sh
# The user and group of streamline.service. Nothing is enabled: `systemctl enable --now streamline.socket` does that.
set -e
if command -v systemd-sysusers >/dev/null; then
    systemd-sysusers streamline.conf
elif ! getent passwd streamline >/dev/null; then
    useradd --system --user-group --no-create-home --shell /usr/sbin/nologin streamline
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
if command -v ldconfig >/dev/null; then
    ldconfig
fi
