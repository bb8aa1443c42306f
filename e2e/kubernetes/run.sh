#!/usr/bin/env bash
# kubernetes-mcp-server against k3s, with the example policy. Needs docker compose 2.24 or newer; exits non-zero on any failure.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=../stack.sh
. ../stack.sh

stack_up
drive /e2e/kubernetes/driver.py
verify_audit gateway
printf '\nAll steps went as told.\n'
