#!/bin/sh
# The example server on loopback and the gateway in front of it, in one container. Arguments go to the gateway.
set -eu

if [ -z "${AIRLOCK_JWT_SECRET:-}" ]; then
  AIRLOCK_JWT_SECRET=$(python -c 'import secrets; print(secrets.token_hex(32))')
  export AIRLOCK_JWT_SECRET
  echo "demo: the signing key is a new one; a token that names alice, good for an hour:"
  python /opt/demo/make_token.py alice
fi

python /opt/demo/ops_server.py --port 9001 --effects /data/effects.jsonl &
exec mcp-airlock --host 0.0.0.0 --policy /opt/demo/policy.yaml --upstream http://127.0.0.1:9001/mcp "$@"
