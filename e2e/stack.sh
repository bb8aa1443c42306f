# shellcheck shell=bash
# For the run.sh of each stack, which sources this from its own folder: builds, starts, drives, and cleans up.
# Whatever fails ends the run with a status that is not 0, after the logs of the stack.

E2E_JWT_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
E2E_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
E2E_PASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export E2E_JWT_SECRET E2E_SECRET E2E_PASSWORD

compose() { docker compose --file compose.yaml "$@"; }

clean_up() {
  local status=$?
  trap - EXIT
  if [ "$status" -ne 0 ]; then
    printf '\n== failed with %s; the logs of the stack\n' "$status" >&2
    compose logs --no-color --tail 200 >&2 || true
  fi
  compose down --volumes --remove-orphans --timeout 5 >/dev/null 2>&1 || true
  exit "$status"
}

# Build the images, then start everything and wait until it is healthy.
stack_up() {
  trap clean_up EXIT
  trap 'exit 130' INT TERM
  compose build
  compose up --detach --wait --wait-timeout 300
}

# Run a part of the driver inside the stack; it exits with 1 when anything differs.
drive() { compose exec -T driver python "$@"; }

# The audit file of a gateway must verify.
verify_audit() {
  local service
  for service in "$@"; do
    compose exec -T "$service" airlock-audit verify
  done
}
