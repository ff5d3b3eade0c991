# Runs a PostgreSQL server for the tests: says where it is once it answers, and stops it when standard input ends, which it
# does however the tests end. Arguments: where PostgreSQL's programs are, and a free port.
set -eu
programs=$1 port=$2
folder=$(mktemp -d)
stop() {
    "$programs/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$folder"
}
trap stop EXIT
{
    "$programs/initdb" -D "$folder/data" -U fairgate -A trust -E UTF8 --no-sync
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
        -keyout "$folder/data/server.key" -out "$folder/data/server.crt"
    "$programs/pg_ctl" -D "$folder/data" -l "$folder/log" -w -t 60 -o "-k $folder -p $port \
        -c listen_addresses=127.0.0.1 -c ssl=on -c fsync=off -c max_connections=300" start
} >"$folder/start" 2>&1 </dev/null || {
    cat "$folder/start" "$folder/log" >&2
    exit 1
}
echo "$folder"
cat >/dev/null
