#!/usr/bin/env bash
# A Slurm of one node from Debian's packages, for as long as a command runs:
#
#     tools/slurm.sh .venv/bin/python -m pytest -m slurm tests/runs/test_executors.py
#
# Needs root. Everything lives in namespaces of its own: nothing is reachable from outside, no
# other Slurm is touched, and all processes end with the command. Files are in a temporary
# directory that is removed.
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: tools/slurm.sh COMMAND..." >&2
    exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "tools/slurm.sh: run it as root" >&2
    exit 2
fi
if [ -z "${TAPE_SLURM_INSIDE:-}" ]; then
    for tool in slurmctld slurmd munged unshare ip; do
        if ! command -v "$tool" >/dev/null; then
            apt-get install --yes --no-install-recommends slurm-wlm munge util-linux iproute2 >&2
            break
        fi
    done
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    TAPE_SLURM_INSIDE=$place unshare --net --pid --fork --mount-proc --kill-child \
        "$0" "$@"
    exit
fi

place=$TAPE_SLURM_INSIDE
host=$(hostname -s)
chmod 755 "$place"
mkdir "$place/state" "$place/spool"

# Slurm looks its own host up, which takes an interface with an address beside loopback.
ip link set lo up
ip link add tape0 type veth peer name tape1
ip address add 10.213.0.1/30 dev tape0
ip link set tape0 up

dd if=/dev/urandom of="$place/munge.key" bs=1024 count=1 status=none
chmod 400 "$place/munge.key"
chown root "$place/munge.key"
munged --force --key-file="$place/munge.key" --socket="$place/munge.socket" \
    --pid-file="$place/munged.pid" --log-file="$place/munged.log" --seed-file="$place/munge.seed"

cat >"$place/slurm.conf" <<CONF
ClusterName=tape
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$place/munge.socket
CredType=cred/munge
StateSaveLocation=$place/state
SlurmdSpoolDir=$place/spool
SlurmctldPidFile=$place/slurmctld.pid
SlurmdPidFile=$place/slurmd.pid
SlurmctldLogFile=$place/slurmctld.log
SlurmdLogFile=$place/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
JobRequeue=1
SchedulerParameters=sched_interval=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) RealMemory=4000 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$place/slurm.conf

slurmctld
slurmd
for _ in $(seq 60); do
    if sinfo --noheader --format=%T 2>/dev/null | grep -q idle; then
        "$@"
        exit
    fi
    sleep 0.5
done
echo "tools/slurm.sh: Slurm did not come up" >&2
tail -n 5 "$place"/*.log >&2
exit 1
