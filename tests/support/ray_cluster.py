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
from dataclasses import replace
from pathlib import Path

from sweeps import SHORT_RUN
from tapebench.runs.executors.ray import Ray
from tapebench.runs.results import load_results

SPECS = [replace(SHORT_RUN, seed=seed, steps=2400) for seed in (0, 1, 2)]


def start_node(*options):
    """`ray start --block` as a process that we can end with all that it has started."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
    return subprocess.Popen(
        [*command, "--node-ip-address=127.0.0.1", "--disable-usage-stats", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def start_head(port, *options):
    """The first node of a cluster, once it listens."""
    head = start_node("--head", f"--port={port}", "--include-dashboard=false", *options)

    def is_up():
        assert head.poll() is None, "the head of the cluster has ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(is_up)
    return head


def join_an_open_cluster():
    """What a driver that has a token is told of a cluster that asks nobody for one."""
    place = tempfile.mkdtemp(prefix="tape-ray-", dir="/tmp")
    mode = os.environ["RAY_AUTH_MODE"]
    os.environ["RAY_AUTH_MODE"] = "disabled"
    head = start_head(6398, f"--temp-dir={place}")
    os.environ["RAY_AUTH_MODE"] = mode
    try:
        Ray(address="127.0.0.1:6398").run([], Path(place), print, print)
    except ValueError as error:
        return str(error)
    finally:
        lose([head.pid, *children(head.pid)])
        shutil.rmtree(place, ignore_errors=True)
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


def is_task(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::_make")
    except OSError:
        return False


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


def sweep(executor, specs, out, disturb, after=2):
    """Run the specs; `disturb` once there are so many reports from each of two runs."""
    out.mkdir()
    seen, changes = {}, []
    calls = [disturb]

    def report(event):
        seen[event["run"]] = seen.get(event["run"], 0) + 1
        if calls and sum(count >= after for count in seen.values()) >= 2:
            calls.pop()()

    def change(run, state, reason):
        changes.append((run, state, reason))

    began = time.monotonic()
    failures = executor.run(specs, out, report, change)
    return {
        "failures": [failure.reason for failure in failures],
        "disturbed": not calls,
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


def main(out):
    token = out / "token"
    token.touch(mode=0o600)
    token.write_text("0123456789abcdef" * 4)
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    # A lost node should be missed within seconds.
    os.environ |= {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}
    found = {"open": join_an_open_cluster()}
    port = 6399
    # Ray's sockets live there, and their paths must be short.
    place = tempfile.mkdtemp(prefix="tape-ray-", dir="/tmp")
    temp = f"--temp-dir={place}"
    head = start_head(port, temp)
    other = start_node(f"--address=127.0.0.1:{port}")
    executor = Ray(address=f"127.0.0.1:{port}")
    import ray

    def has_two():
        try:
            ray.init(address=executor.address, log_to_driver=False)
            return sum(node["Alive"] for node in ray.nodes()) == 2
        except Exception:
            return False
        finally:
            ray.shutdown()

    wait_until(has_two)
    found["interfaces"] = [name for _, name in socket.if_nameindex()]
    found["listeners"] = listeners()

    def kill_a_task():
        lose([pid for pid in children(1) if is_task(pid)][:1])

    def lose_a_node():
        lose([other.pid, *children(other.pid)])

    bringing = replace(executor, bring_back=True)
    # Two runs for two nodes, and then one more than there are nodes.
    found["worker killed"] = sweep(executor, SPECS[:2], out / "killed", kill_a_task)
    found["brought back"] = sweep(bringing, SPECS[:2], out / "brought", kill_a_task)
    found["node lost"] = sweep(executor, SPECS, out / "lost", lose_a_node)
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
    shutil.rmtree(place, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
