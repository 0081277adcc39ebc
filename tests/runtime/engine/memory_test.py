#!/usr/bin/python3
"""Peak memory stays within the budget plus 20 MB, at five budgets; a cgroup limit bounds the default budget.

    memory_test.py WASTE_RUN SYNTHETIC_CONTAINER

The container is random weights at Kimi-Linear's widths (0.4 GB), so that every part of the budget is large enough to
be seen. The same ids must give the same logits under every budget."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

MB = 1_000_000
IDS = ",".join(str((i + 1) * 2654435761 % 4096) for i in range(96))


def generate(tool, model, budget=None, prepare=None):
    """-> exit code, parsed output or None, stderr, peak resident bytes"""
    command = [tool, "generate", model, "--ids", IDS, "-n", "4", "--ctx", "512", "--temperature", "0", "--threads", "2",
               "--json"]
    if budget is not None:
        command += ["--budget", str(budget)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, preexec_fn=prepare)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        code = child.returncode
        return code, json.loads(out.read()) if code == 0 else None, err.read().decode(), usage.ru_maxrss * 1024


def cgroup_with_limit(limit):
    """A memory cgroup of our own (version 2, else 1), or None where this process may not make one."""
    for root, control in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        if not os.path.exists(os.path.join(root, "cgroup.procs")):
            continue
        path = os.path.join(root, f"waste-test-{os.getpid()}")
        try:
            os.mkdir(path)
        except OSError:
            continue
        try:
            with open(os.path.join(path, control), "r+") as f:
                f.write(str(limit))
            return path
        except OSError:
            os.rmdir(path)
    return None


def main():
    tool, maker = sys.argv[1:]
    folder = tempfile.mkdtemp(prefix="waste-memory-")
    try:
        model = os.path.join(folder, "model.waste")
        subprocess.run([maker, model, "--layers", "4", "--experts", "32", "--vocab", "4096"], check=True,
                       stderr=subprocess.DEVNULL)
        code, _, error, _ = generate(tool, model, 1 * MB)
        assert code == 3, (code, error)
        floor = float(re.search(r"below the ([0-9.]+) MB", error)[1]) * MB

        hashes = set()
        for budget in (int(floor * 1.01), int(floor) + 20 * MB, int(floor) + 60 * MB, int(floor) + 120 * MB, 2000 * MB):
            code, result, error, peak = generate(tool, model, budget)
            assert code == 0, error
            print(f"budget {budget / MB:.0f} MB: peak {peak / MB:.0f} MB")
            assert peak <= budget + 20 * MB, (budget, peak)
            hashes.add(result["logits_hash"])
        assert len(hashes) == 1, hashes

        limit = int(floor * 1.6)
        group = cgroup_with_limit(limit)
        if group is None:
            print("no cgroup can be made here: the default budget under a limit was not tested")
            return
        try:
            def enter():
                with open(os.path.join(group, "cgroup.procs"), "w") as f:
                    f.write(str(os.getpid()))

            code, result, error, peak = generate(tool, model, None, enter)
            assert code == 0, error
            print(f"limit {limit / MB:.0f} MB: peak {peak / MB:.0f} MB")
            assert peak <= limit * 3 // 4 + 20 * MB, (limit, peak)
            assert result["logits_hash"] in hashes
        finally:
            os.rmdir(group)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
