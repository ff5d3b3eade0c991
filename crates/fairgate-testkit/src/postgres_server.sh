# Keeps a PostgreSQL server in a folder of its own. Says where the folder is once the server answers. Stops the server and
# removes the folder when standard input ends, which it does however the program that uses it ends.
# Arguments: where PostgreSQL's programs are, a free port, and further settings of the server. With `ssl = on` the server gets
# a certificate.
set -eu
programs=$1 port=$2 settings=$3
folder=$(mktemp -d)
stop() {
    # A server that was left standing still would not stop.
    first=$(head -n 1 "$folder/data/postmaster.pid" 2>/dev/null || true)
    if [ -n "$first" ]; then
        kill -CONT "$first" $(ps -o pid= --ppid "$first") 2>/dev/null || true
        "$programs/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1 || true
    fi
    rm -rf "$folder"
}
trap stop EXIT
# Ctrl-C reaches this script too: the server ends with the program, not before it.
trap '' INT
{
    "$programs/initdb" -D "$folder/data" -U fairgate -A trust -E UTF8 --no-sync
    case $settings in *'ssl = on'*)
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
            -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
            -keyout "$folder/data/server.key" -out "$folder/data/server.crt"
    esac
    cat >>"$folder/data/postgresql.conf" <<END
unix_socket_directories = '$folder'
port = $port
listen_addresses = '127.0.0.1'
$settings
END
    "$programs/pg_ctl" -D "$folder/data" -l "$folder/log" -w -t 60 start
} >"$folder/start" 2>&1 </dev/null || {
    cat "$folder/start" "$folder/log" >&2
    exit 1
}
echo "$folder"
cat >/dev/null
