"""A real SLURM of one node on this machine, for as long as a block runs: munged, slurmctld and slurmd as root.

No accounting database, no cgroups, no configuration outside a temporary folder.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONFIGURATION = """
ClusterName=collapselab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,batch_sched_delay=1
ReturnToService=2
JobRequeue=1
KillWait=10
MinJobAge=60
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why no cluster is started here, None if one is."""
    if not os.environ.get("COLLAPSELAB_SLURM"):
        return "returns with `make test-slurm`, which sets COLLAPSELAB_SLURM"
    if os.geteuid() != 0:
        return "returns where the tests run as root"
    tools = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun") if shutil.which(name) is None]
    return f"returns where Debian's slurm-wlm and munge are installed (no {', '.join(tools)})" if tools else None


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which sbatch, srun and squeue reach the cluster."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)  # munged refuses a place that others could write to
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    host = socket.gethostname().split(".")[0]
    values = {"host": host, "folder": folder, "controller": _port(), "daemon": _port(), "cpus": os.cpu_count()}
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**values))
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    munged = [
        "munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
        f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munged.seed", f"--log-file={folder}/munged.log",
    ]  # fmt: skip
    processes = [_started(munged, environment, folder)]
    try:
        _until(lambda: (folder / "munge.socket").exists(), "munged")
        processes.append(_started(["slurmctld", "-D", "-i"], environment, folder))
        processes.append(_started(["slurmd", "-D", "-N", host], environment, folder))
        _until(lambda: "idle" in _said(["sinfo", "--noheader", "--format=%T"], environment), "slurmd")
        yield environment
    finally:
        subprocess.run(["scancel", "--user=root"], env=environment, check=False, capture_output=True, timeout=20)
        time.sleep(1)
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _started(command: list[str], environment: dict[str, str], folder: Path) -> "subprocess.Popen[bytes]":
    with (folder / f"{command[0]}.out").open("wb") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def _said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20).stdout


def _until(condition, what: str, seconds: float = 40.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not start within {seconds:.0f} s")
        time.sleep(0.3)


def _port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
