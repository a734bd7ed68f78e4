"""A Ray cluster of two nodes on loopback, and what happens to sweeps on it.

    python ray_cluster.py OUT

Run by `test_executors.py` in namespaces of its own, where only loopback exists and every process
of the cluster ends with it. Prints one JSON document.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from halts import Halts
from sweeps import SHORT_RUN
from tapebench.runs.executors.ray import Ray
from tapebench.runs.results import load_results

SPECS = [replace(SHORT_RUN, seed=seed, steps=2400) for seed in (0, 1, 2)]


def start_node(*options, **environment):
    """`ray start --block` as a process that we can end with all that it has started."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
    return subprocess.Popen(
        [*command, "--node-ip-address=127.0.0.1", "--disable-usage-stats", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | environment,
    )


def start_head(port, folder, **environment):
    """The first node of a cluster, which will listen soon."""
    options = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
    return start_node(*options, **environment)


def wait_for_head(head, port):
    def is_up():
        assert head.poll() is None, "the head of the cluster has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(is_up)


def join_an_open_cluster(head, port):
    """What a driver that has a token is told of a cluster that asks nobody for one."""
    wait_for_head(head, port)
    try:
        Ray(address=f"127.0.0.1:{port}").run([], Path(), print, print)
    except ValueError as error:
        return str(error)
    finally:
        lose([head.pid, *children(head.pid)])
    return "joined"


def children(pid):
    """All processes below one."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(place.name))
    found = [*parents.get(pid, [])]
    for child in found:
        found += parents.get(child, [])
    return found


def lose(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_until(is_so, seconds=120):
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


def sweep(executor, specs, out, halts, accidents):
    """Run the specs; each accident once the tasks of the first two have stopped at its step.

    An accident is given the processes of these tasks, and tells which of them it struck.
    """
    out.mkdir()
    struck, events, changes = {}, [], []

    def strike(step, accident, pids):
        struck[step] = len(accident(pids))

    def change(run, state, reason):
        changes.append((run, state, reason))

    began = time.monotonic()
    with ExitStack() as watched:
        for step, accident in accidents.items():
            points = [halts.add(spec.id, step) for spec in specs[:2]]
            watched.enter_context(halts.met(points, partial(strike, step, accident)))
        failures = executor.run(specs, out, events.append, change)
    return {
        "failures": [failure.reason for failure in failures],
        "struck": [struck[step] for step in accidents],
        "reported": sorted({event["run"] for event in events}),
        "changes": changes,
        "seconds": time.monotonic() - began,
        "finished": len(load_results(out).paths),
    }


def listeners():
    """Addresses that something listens on, as the kernel writes them."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.add(fields[1].split(":")[0])
    return sorted(found)


SETTINGS = {
    # A lost node should be missed within a second.
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "200",
    "RAY_health_check_failure_threshold": "3",
    # Tasks should not wait for whatever else is at work here, nor for workers that nobody needs.
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
}


def main(out):
    token = out / "token"
    token.touch(mode=0o600)
    token.write_text("0123456789abcdef" * 4)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), **SETTINGS}
    halts = Halts(out / "halts")
    # Ray's sockets live there, and their paths must be short.
    folders = [tempfile.mkdtemp(prefix="tape-ray-", dir="/tmp") for _ in range(2)]
    port = 6399
    open_head = start_head(port - 1, folders[0], RAY_AUTH_MODE="disabled")
    head = start_head(port, folders[1], **halts.environment)
    found = {"open": join_an_open_cluster(open_head, port - 1)}
    wait_for_head(head, port)
    address = f"127.0.0.1:{port}"
    other = start_node(f"--address={address}", **halts.environment)
    executor = Ray(address=address)
    from ray._raylet import GcsClient

    client = GcsClient(address=address)
    wait_until(lambda: len(client.get_all_node_info()) == 2)
    found["interfaces"] = [name for _, name in socket.if_nameindex()]
    found["listeners"] = listeners()

    def kill_a_task(pids):
        lose(pids[:1])
        return pids[:1]

    def lose_a_node(pids):
        below = children(other.pid)
        lose([other.pid, *below])
        return set(pids) & set(below)

    bringing = replace(executor, bring_back=True)
    found["brought back"] = sweep(bringing, SPECS[:2], out / "brought", halts, {800: kill_a_task})
    # Last, as the node does not come back; with one run more than there were nodes.
    accidents = {800: kill_a_task, 1600: lose_a_node}
    found["shared"] = sweep(executor, SPECS, out / "shared", halts, accidents)
    command = [sys.executable, "-c", "from tapebench.cli import main; main()", "bench", "--json"]
    command += [
        "--track",
        "smoke",
        "--agents",
        "ppo",
        "--seeds",
        "1",
        "--results",
        str(out / "typed"),
    ]
    command += ["--executor", "ray", "--address", executor.address]
    typed = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    found["typed"] = json.loads(typed.stdout)
    lose([head.pid, *children(head.pid)])
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
