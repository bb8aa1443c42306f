#!/usr/bin/env bash
# Five gateways, one Postgres, a webhook approver. Needs docker compose 2.24 or newer; exits non-zero on any failure.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=../stack.sh
. ../stack.sh

stack_up
drive /e2e/postgres/driver.py story
compose pause postgres
drive /e2e/postgres/driver.py outage
compose unpause postgres
drive /e2e/postgres/driver.py recovery
verify_audit gateway-1 gateway-2 gateway-3 gateway-4 gateway-5
printf '\nAll steps went as told.\n'
