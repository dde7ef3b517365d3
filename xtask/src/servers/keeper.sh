# Keeps one throw-away server: makes its directory, runs it, and takes both down when standard
# input ends. xtask holds the other end of that pipe, so the server goes however xtask goes: at its
# end, by Ctrl-C or by kill -9.
#
# usage: keeper.sh KIND PROGRAM DIRECTORY PORT
set -eu
kind=$1 program=$2 dir=$3 port=$4
exec 3<&0 </dev/null

# Runs a command until it ends by itself or standard input ends. SIGKILL follows if the asked-for
# signal does not do.
run() {
    signal=$1
    shift
    "$@" 3<&- >>"$dir/log" 2>&1 &
    running=$!
    {
        read -r _ <&3 || true
        : >"$dir/stopping"
        kill -s "$signal" "$running"
        tries=0
        while kill -s 0 "$running" && [ "$tries" -lt 50 ]; do
            sleep 0.1
            tries=$((tries + 1))
        done
        kill -s KILL "$running"
    } >/dev/null 2>&1 &
    guard=$!
    status=0
    wait "$running" || status=$?
    [ -e "$dir/stopping" ] || kill "$guard"
    # The shell would report the end of its guard.
    wait "$guard" 2>/dev/null || true
    return "$status"
}

postgres() {
    # Skipping the sync of the empty cluster costs nothing: durability begins with the first test.
    run TERM "$program/initdb" -D "$dir/data" -U postgres --auth=trust --encoding=UTF8 --locale=C \
        --no-sync || return
    # SIGQUIT is an immediate shutdown. Nobody will read this cluster again.
    run QUIT "$program/postgres" -D "$dir/data" -h 127.0.0.1 -p "$port" -k "$dir" \
        -c max_connections=300 -c fsync=on -c synchronous_commit=on -c full_page_writes=on
}

redis() {
    run TERM "$program" --bind 127.0.0.1 --port "$port" --unixsocket "$dir/redis.sock" --dir "$dir" \
        --appendonly yes --appendfsync always --maxmemory-policy noeviction --save ""
}

umask 077
mkdir "$dir"
"$kind" || true
# Tells xtask that the server went by itself; the log stays for it to read.
: >"$dir/ended"
read -r _ <&3 || true
rm -rf "$dir"
