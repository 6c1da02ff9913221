#!/usr/bin/env bash
# A real Slurm on this one machine, for trying a sweep's job file before it goes to a cluster:
#
#     apt-get install slurmctld slurmd slurm-client munge
#     scripts/slurm.sh start [NODES]         # by default one for each processor; needs root, as a Slurm of any size does
#     export SLURM_CONF=$(scripts/slurm.sh conf)
#     sinfo; sbatch …; squeue
#     scripts/slurm.sh stop
#
# Every node is a slurmd of its own with one processor. All files lie in SLURM_HERE, by default /tmp/tenantry-slurm; nothing under
# /etc is read or changed, and no system service is involved.
set -euo pipefail
here=${SLURM_HERE:-/tmp/tenantry-slurm}
conf=$here/slurm.conf
export SLURM_CONF=$conf

need() {
    for program in munged slurmctld slurmd scontrol; do
        command -v "$program" >/dev/null || {
            echo "$program is missing: apt-get install slurmctld slurmd slurm-client munge" >&2
            exit 1
        }
    done
}

configure() { # nodes
    mkdir -p "$here"/{state,spool,log}
    chmod 755 "$here"
    [[ -f $here/munge.key ]] || (umask 077 && head -c 1024 /dev/urandom >"$here/munge.key")
    cat >"$conf" <<CONF
ClusterName=tenantry
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=16817
SlurmUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$here/munge.socket
CredType=cred/munge
StateSaveLocation=$here/state
SlurmdSpoolDir=$here/spool/%n
SlurmctldPidFile=$here/slurmctld.pid
SlurmdPidFile=$here/slurmd-%n.pid
SlurmctldLogFile=$here/log/slurmctld.log
SlurmdLogFile=$here/log/slurmd-%n.log
# No cgroups: a container has none to give.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
MaxArraySize=100001
MaxJobCount=100000
NodeName=node[1-$1] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[17001-$((17000 + $1))] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

start() { # nodes
    need
    configure "$1"
    munged --force --key-file="$here/munge.key" --socket="$here/munge.socket" --pid-file="$here/munged.pid" \
        --log-file="$here/log/munged.log" --seed-file="$here/munged.seed"
    slurmctld -f "$conf"
    for ((node = 1; node <= $1; node++)); do
        mkdir -p "$here/spool/node$node"
        slurmd -f "$conf" -N "node$node"
    done
    for ((second = 0; second < 30; second++)); do
        (($(sinfo --noheader --Node --states=idle 2>/dev/null | wc -l) == $1)) && break
        sleep 1
    done
    sinfo
}

stop() {
    for file in "$here"/slurmd-*.pid "$here/slurmctld.pid" "$here/munged.pid"; do
        [[ -f $file ]] && kill "$(<"$file")" 2>/dev/null || true
    done
}

case ${1:-} in
    start) start "${2:-$(nproc)}" ;;
    conf) echo "$conf" ;;
    stop) stop ;;
    *)
        sed -n '2,/^set/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2
        exit 2
        ;;
esac
