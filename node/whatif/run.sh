#!/bin/bash
# Runs in a container of the node image: starts accounting and slurmctld with the files of /run/replay, replays the jobs, and
# prints the events, then slurmctld's own record of all jobs. Everything is in memory: no file is worth a write to the disk.
set -eu
cd /run/replay
fail() {
    printf 'failed\t%s\n' "$1"
    tail -n 5 ./*.log >&2 || true
    exit 1
}
# $1: what is waited for, $2: seconds, the rest: a command that succeeds when it is there
await() {
    local what=$1 end=$((SECONDS + $2))
    shift 2
    until "$@" >>await.log 2>&1; do
        [ $SECONDS -lt $end ] || fail "$what did not start"
        sleep 0.05
    done
}
export TZ=UTC
ip address add 192.0.2.1/32 dev lo # getaddrinfo finds no address on a machine that has only 127.0.0.1
printf '127.0.0.1 localhost %s\n' "$HEAD" >/etc/hosts
cat passwd >>/etc/passwd
cat group >>/etc/group
for file in etc/*; do install -o slurm -g slurm -m 600 "$file" /etc/slurm/; done
chmod 644 /etc/slurm/*
chmod 600 /etc/slurm/slurmdbd.conf
gcc -O2 -Wall -Wextra -Werror -fPIC -shared -o replay.so clock.c nodes.c replay.c 2>gcc.log || fail "the replay library can't be built for this image: $(tail -n 1 gcc.log)"

install -d -o mysql /run/mysqld
install -d -o slurm -g slurm state
touch jobcomp events
chown slurm:slurm . jobcomp events
cp -a /var/lib/mysql database
mariadbd --user=mysql --skip-networking --datadir="$PWD/database" >mariadb.log 2>&1 &
database=$!
await MariaDB 60 mariadb -e 'select 1'
mariadb -e 'create database if not exists slurm_acct_db; create user if not exists slurm@localhost identified via unix_socket; grant all on slurm_acct_db.* to slurm@localhost'
# The first start on a new database can fail: the program ends and the next one starts.
slurmdbd_runs() {
    if ! kill -0 "${accounting:-0}" 2>/dev/null || [ -z "${accounting:-}" ]; then
        slurmdbd -D >>slurmdbd.log 2>&1 &
        accounting=$!
    fi
    sacctmgr -n list cluster
}
await slurmdbd 60 slurmdbd_runs
sh ./qos.sh >accounts.log 2>&1 || fail "the QOS can't be added: $(tail -n 1 accounts.log)"
HEADWAY_REPLAY=$PWD HEADWAY_REPLAY_START=$((START - 600)) LD_PRELOAD=$PWD/replay.so slurmctld -D >slurmctld.log 2>&1 &
controller=$!
await slurmctld 60 scontrol ping
sh ./accounts.sh >accounts.log 2>&1 || fail "the accounts can't be added: $(tail -n 1 accounts.log)"
[ -z "$ABSENT" ] || scontrol update "nodename=$ABSENT" state=drain reason=absent
all_answer() { [ -z "$(sinfo -h -N -o %T | grep -v -e idle -e drained)" ]; }
await "one of the nodes" 120 all_answer
# The replay needs only what slurmctld has read by now; its messages to slurmdbd would be in virtual time.
kill "$accounting" "$database"
wait "$accounting" "$database" || true
touch go
tail -n +1 -s 0.1 -f --pid=$controller events &
wait $controller || fail "slurmctld ended: $(tail -n 1 slurmctld.log)"
wait $! || true
sed 's/^/job\t/' jobcomp
