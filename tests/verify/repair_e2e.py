#!/usr/bin/python3
"""waste-verify repair: hundreds of damages undone, from a folder and from a server, also when killed halfway."""
import contextlib
import hashlib
import http.server
import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

from support import Case, VERIFY, allocated, flip, run, size

NAME = "tiny-linear.vq2.waste"
RECORD = 8192


def digests(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as f:
            out[name] = hashlib.sha256(f.read()).hexdigest()
    return out


def damage(folder, rng, seal=True):
    """One random damage; returns the name of the file that has it."""
    names = sorted(n for n in os.listdir(folder) if seal or n != "seal.waste")
    banks = [n for n in names if n.startswith("experts-") and os.path.getsize(os.path.join(folder, n)) >= 2 * RECORD]
    kind = rng.choice(("bit", "page", "swap", "cut", "missing", "grown"))
    if kind == "swap" and not banks:
        kind = "bit"
    name = rng.choice(banks if kind == "swap" else names)
    path = os.path.join(folder, name)
    size = os.path.getsize(path)
    if size == 0:
        os.remove(path)
    elif kind == "bit":
        flip(path, rng.randrange(size), rng.randrange(8))
    elif kind == "page":
        with open(path, "r+b") as f:
            start = rng.randrange(size) // 4096 * 4096
            f.seek(start)
            before = f.read(4096)
            f.seek(start)
            f.write(bytes(len(before)) if any(before) else b"\1" * len(before))
    elif kind == "swap":
        with open(path, "r+b") as f:
            a, b = rng.sample(range(size // RECORD), 2)
            data = f.read()
            for at, other in ((a, b), (b, a)):
                f.seek(at * RECORD)
                f.write(data[other * RECORD:(other + 1) * RECORD])
    elif kind == "cut":
        os.truncate(path, rng.randrange(size))
    elif kind == "grown":
        with open(path, "ab") as f:
            f.write(rng.randbytes(rng.randrange(1, 5000)))
    else:
        os.remove(path)
    return name


class Server:
    """Serves a folder with range requests; a 503 now and then, and every path it was asked for."""

    def __init__(self, folder, ranges=True):
        outer = self
        self.asked, self.failures = [], 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Range")))
                if outer.failures > 0:
                    outer.failures -= 1
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                path = os.path.join(folder, os.path.basename(self.path))
                if not os.path.exists(path):
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                with open(path, "rb") as f:
                    data = f.read()
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                if asked and ranges:
                    first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
                    self.send_response(206)
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
                    data = data[first:last + 1]
                else:
                    self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the client may hang up on a body it did not ask for
                    self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/models"

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.server.shutdown()
        self.server.server_close()


class Repair(Case):
    def setUp(self):
        super().setUp()
        self.good = self.sealed(NAME, "good.waste")
        self.before = digests(self.good)
        self.bad = self.path("bad.waste")
        shutil.copytree(self.good, self.bad)

    def test_500_damages(self):
        rng = random.Random(4)
        left = 500
        while left > 0:
            count = min(left, rng.choice((1, 1, 5, 20)))
            left -= count
            # Without its seal a container must keep one sound record, to prove that the other one's seal is its own.
            hurt = {damage(self.bad, rng, seal=count <= 5) for _ in range(count)}
            if digests(self.bad) == self.before:  # two damages that cancel out
                continue
            report = run("check", self.bad, "--json", "-q")
            if report.returncode == 0:  # a missing seal alone leaves a sound container, which it then is not proved
                self.assertEqual(hurt, {"seal.waste"})
                self.assertFalse(json.loads(report.stdout)["sealed"])
            else:
                self.assertEqual(report.returncode, 1, report.stderr)
            result = run("repair", self.bad, "--from", self.good, "-q")
            self.assertEqual(result.returncode, 0, (hurt, result.stdout, result.stderr))
            self.assertEqual(digests(self.bad), self.before, hurt)

    def test_sound_files_are_not_touched(self):
        stamps = {n: os.stat(os.path.join(self.bad, n)).st_mtime_ns for n in self.before}
        flip(os.path.join(self.bad, "experts-L2.bin"), 9000, 1)
        report = self.json(0, "repair", self.bad, "--from", self.good)
        self.assertEqual((report["damaged_extents"], report["restored_extents"]), (1, 1))
        for name in self.before:
            changed = os.stat(os.path.join(self.bad, name)).st_mtime_ns != stamps[name]
            self.assertEqual(changed, name == "experts-L2.bin", name)
        self.assertIn("nothing to repair", self.ok("repair", self.bad, "--from", self.good))

    def test_holes_are_not_filled(self):
        ghost = self.ghost("kimi-linear.json", "--headers", "--layers", "2", "--expert-count", "4")
        self.ok("seal", ghost, "-q")
        good, bank = self.path("ghost-good.waste"), os.path.join(ghost, "experts-L1.bin")
        self.ok("copy", ghost, good, "-q")
        before = allocated(ghost, "experts-L1.bin"), allocated(ghost, "trunk.bin")
        flip(bank, 100, 0)
        self.assertEqual(self.json(0, "repair", ghost, "--from", good)["restored_extents"], 1)
        record = size(ghost, "experts-L1.bin") // 4
        # One record was written, and holds its zeros now; nothing else became solid.
        self.assertLessEqual(allocated(ghost, "experts-L1.bin"), before[0] + record + 65536)
        self.assertLessEqual(allocated(ghost, "trunk.bin"), before[1])
        os.truncate(bank, 3 * record)
        self.ok("repair", ghost, "--from", good, "-q")
        self.assertLessEqual(allocated(ghost, "experts-L1.bin"), before[0] + 2 * record + 65536)
        self.ok("check", ghost, "-q")

    def test_killed_halfway(self):
        rng = random.Random(5)
        for delay in (0, 0.005, 0.01, 0.02, 0.04, 0.08):
            for _ in range(30):
                damage(self.bad, rng, seal=False)
            process = subprocess.Popen([VERIFY, "repair", self.bad, "--from", self.good, "-q"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.ok("repair", self.bad, "--from", self.good, "-q")
            for name in os.listdir(self.bad):
                if name.endswith(".partial"):  # of an atomic write that the kill cut short
                    os.remove(os.path.join(self.bad, name))
            self.assertEqual(digests(self.bad), self.before)

    def test_from_a_server(self):
        flip(os.path.join(self.bad, "experts-L2.bin"), 3 * RECORD + 50, 1)
        os.truncate(os.path.join(self.bad, "trunk.bin"), 1000)
        os.remove(os.path.join(self.bad, "seal.waste"))
        with Server(self.good) as server:
            server.failures = 1
            self.ok("repair", self.bad, "--from", server.url)
            self.assertIn(("/models/experts-L2.bin", f"bytes={3 * RECORD}-{4 * RECORD - 1}"), server.asked)
            self.assertNotIn("/models/experts-L1.bin", [path for path, _ in server.asked])
        self.assertEqual(digests(self.bad), self.before)

    def test_servers_that_do_not_help(self):
        flip(os.path.join(self.bad, "experts-L2.bin"), 3 * RECORD + 50, 1)
        hurt = digests(self.bad)
        with Server(self.good, ranges=False) as server:
            self.refused(4, "repair", self.bad, "--from", server.url, "-q")
        with Server(self.path("empty")) as server:
            result = run("repair", self.bad, "--from", server.url, "-q")
            self.assertEqual(result.returncode, 1)
            self.assertIn("HTTP 404", result.stdout)
        self.assertEqual(digests(self.bad), hurt)

    def test_the_other_copy_is_damaged_too(self):
        for folder, bit in ((self.bad, 1), (self.good, 2)):
            flip(os.path.join(folder, "experts-L2.bin"), 3 * RECORD + 50, bit)
        flip(os.path.join(self.bad, "experts-L2.bin"), 5 * RECORD + 50, 1)
        result = run("repair", self.bad, "--from", self.good)
        self.assertEqual(result.returncode, 1)
        self.assertIn("expert 3 of layer 2: not restored", result.stdout)
        self.assertIn("1 of 2 damaged extents restored", result.stdout)

    def test_refusals(self):
        self.refused(2, "repair", self.bad)
        self.refused(1, "repair", self.path("absent"), "--from", self.good)
        self.refused(1, "repair", self.bad, "--from", self.path("absent"))
        plain = self.copy(NAME, "plain.waste")
        another = self.copy(NAME, "another.waste")
        self.assertIn("without a seal", self.refused(1, "repair", plain, "--from", another))
        stranger = self.sealed("tiny-linear.waste", "stranger.waste")
        before = digests(plain)
        self.assertIn("another container", self.refused(1, "repair", plain, "--from", stranger, "-q"))
        self.assertEqual(digests(plain), before)
        stranger = self.sealed("tiny-linear.vq4p.waste", "vq4p.waste")
        same_size = self.copy("tiny-linear.waste", "vq3.waste")
        self.assertIn("another container", self.refused(1, "repair", same_size, "--from", stranger, "-q"))


if __name__ == "__main__":
    unittest.main()
