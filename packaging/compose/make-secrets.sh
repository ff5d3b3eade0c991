#!/bin/sh
# Makes the secrets of compose.yaml, unless they are there. The containers' users must read them, so the files are
# readable for all, and the folder only for you.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 700 secrets
umask 022
new() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
[ -s secrets/admin-token ] || new > secrets/admin-token
[ -s secrets/chat-key ] || new > secrets/chat-key
[ -s secrets/batch-key ] || new > secrets/batch-key
[ -s secrets/postgres-password ] || new > secrets/postgres-password
[ -s secrets/store-url ] || printf 'postgres://fairgate:%s@postgres/fairgate' "$(cat secrets/postgres-password)" > secrets/store-url
