#!/bin/sh
# What the image of PostgreSQL does that compose.yaml is written for: makes the database at the first start, and runs it.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data
if [ ! -s "$data/PG_VERSION" ]; then
    "$bin/initdb" --pgdata="$data" --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 --encoding=UTF8 > /dev/null
    printf '\nhost all all all scram-sha-256\n' >> "$data/pg_hba.conf"
    "$bin/pg_ctl" --pgdata="$data" --wait --options="-c listen_addresses='' -k /tmp" start > /dev/null
    PGPASSWORD=$(cat "$POSTGRES_PASSWORD_FILE") "$bin/createdb" --host=/tmp --username="$POSTGRES_USER" "$POSTGRES_DB" || true
    "$bin/pg_ctl" --pgdata="$data" --wait --mode=fast stop > /dev/null
fi
exec "$bin/postgres" -D "$data" -c listen_addresses="${POSTGRES_LISTEN:-*}" -c port="${POSTGRES_PORT:-5432}" -k /tmp
