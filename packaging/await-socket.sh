#!/usr/bin/env bash
# Waits until somebody listens on a socket: packaging/await-socket.sh PATH PID. Fails when the
# process is gone first, or after 20 s.
set -euo pipefail
for ((i = 0; i < 400; i++)); do
	[[ ! -S $1 ]] || exit 0
	kill -0 "$2" 2>/dev/null || break
	sleep 0.05
done
echo "nobody listens on $1" >&2
exit 1
