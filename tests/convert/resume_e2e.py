#!/usr/bin/python3
"""The same bytes whatever the threads, the SIMD path, and how often and how rudely it was interrupted."""

import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from support import CHEAP, CONVERT, DATA, Case, Shard, digests, run

SOURCE = DATA / "tiny-linear"
KILLS = 30


def start(out, *options, **kwargs):
    return subprocess.Popen([CONVERT, str(SOURCE), str(out), "--quiet", *CHEAP, *options], stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, **kwargs)


class Resume(Case):
    @classmethod
    def setUpClass(cls):
        cls.parent = tempfile.TemporaryDirectory(prefix="waste-convert-")
        cls.addClassCleanup(cls.parent.cleanup)
        cls.plain = pathlib.Path(cls.parent.name) / "plain"
        begin = time.monotonic()
        run(SOURCE, cls.plain, "--threads", "1", "--quiet", *CHEAP, check=True)
        cls.seconds = time.monotonic() - begin
        cls.expected = digests(cls.plain)

    def test_threads_and_simd_paths(self):
        for threads in (2, 5):
            self.expect(0, SOURCE, self.dir / f"t{threads}", "--threads", threads, "--quiet", *CHEAP)
            self.assertEqual(digests(self.dir / f"t{threads}"), self.expected, threads)
        self.expect(0, SOURCE, self.dir / "scalar", "--quiet", *CHEAP, env=os.environ | {"WASTE_SIMD": "scalar"})
        self.assertEqual(digests(self.dir / "scalar"), self.expected)

    def test_memory_ceiling_does_not_show(self):
        result = run(SOURCE, self.dir / "x", "--memory", "1M", *CHEAP)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("below the floor", result.stderr)
        self.expect(0, SOURCE, self.dir / "out", "--memory", "200M", "--threads", "5", "--quiet", *CHEAP)
        self.assertEqual(digests(self.dir / "out"), self.expected)

    def test_killed_at_random_instants(self):
        rng, kills, finished = random.Random(20), 0, 0
        out = self.dir / "out"
        while kills < KILLS or finished == 0:
            process = start(out, "--threads", str(rng.choice((1, 2, 5))))
            try:
                process.wait(timeout=rng.uniform(0, 0.5 * self.seconds) if kills < KILLS else None)
                self.assertEqual(process.returncode, 0, process.stderr.read())
                self.assertEqual(digests(out), self.expected)
                finished += 1
                shutil.rmtree(out)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                self.assertFalse((out / "manifest.json").exists() and
                                 digests(out).get("manifest.json") != self.expected["manifest.json"])
            process.stderr.close()

    def test_interrupt_saves_and_exits_5(self):
        out, interrupted = self.dir / "out", 0
        for _ in range(200):
            process = start(out)
            time.sleep(0.15 * self.seconds)
            process.send_signal(signal.SIGINT)
            message = process.communicate()[1]
            if process.returncode == 0:
                break
            # Before the handler stands, SIGINT simply ends the process.
            self.assertIn(process.returncode, (5, -signal.SIGINT), message)
            if process.returncode == 5:
                self.assertIn("run again to continue", message)
                interrupted += 1
        self.assertEqual(process.returncode, 0)
        self.assertGreater(interrupted, 0)
        self.assertEqual(digests(out), self.expected)

    def test_a_finished_bank_that_changed_is_converted_again(self):
        out = self.dir / "out"
        self.expect(0, SOURCE, out, "--layers", "1,2", "--quiet", *CHEAP)
        for name, at in (("experts-L1.bin", 5000), ("trunk.bin", 123456)):
            with open(out / name, "r+b") as f:
                f.seek(at)
                byte = f.read(1)
                f.seek(at)
                f.write(bytes([byte[0] ^ 1]))
        os.truncate(out / "experts-L2.bin", 4096)
        self.expect(0, SOURCE, out, "--quiet", *CHEAP)
        self.assertEqual(digests(out), self.expected)

    def test_damaged_journal_is_done_again(self):
        out = self.dir / "out"
        self.expect(0, SOURCE, out, "--layers", "1,2", "--quiet", *CHEAP)
        (out / ".waste-convert" / "layer-1.json").write_text("{")
        (out / ".waste-convert" / "codebooks-2.bin").write_bytes(b"x")
        (out / ".waste-convert" / "trunk.json").write_text('{"complete": 1}')
        self.expect(0, SOURCE, out, "--quiet", *CHEAP)
        self.assertEqual(digests(out), self.expected)

    def test_other_options_or_source_are_refused_by_name(self):
        out = self.dir / "out"
        self.expect(0, SOURCE, out, "--probe", "--quiet", *CHEAP)
        self.expect(2, SOURCE, out, *CHEAP, "--experts", "vq2", says="experts was VQ3R, now VQ2R")
        self.expect(2, SOURCE, out, "--quality", "best", "--codebook-sample", "1024", says="quality was fast, now best")
        self.expect(2, SOURCE, out, "--quality", "fast", "--codebook-sample", "2048", says="codebook_sample was 1024, now 2048")
        self.expect(2, DATA / "tiny-k3", out, *CHEAP, says="source was")
        self.expect(2, SOURCE, self.plain, *CHEAP, "--trunk-bits", "8", says="trunk was Q4G, now Q8G")
        result = self.expect(0, SOURCE, self.plain, *CHEAP)
        self.assertIn("already converted", result.stdout)
        twin = self.source()  # other weights behind the same headers
        for path in twin.glob("*.safetensors"):
            shard = Shard(path)
            shard.data = bytearray(b ^ 1 for b in shard.data)
            path.write_bytes(path.read_bytes()[:-len(shard.data)] + shard.data)
        self.expect(2, twin, out, *CHEAP, says="source was")
        self.expect(2, SOURCE, DATA / "golden" / "tiny-linear.waste", *CHEAP, says="written by another tool")

    def test_second_process_is_refused_by_the_name_of_the_first(self):
        out = self.dir / "out"
        process = start(out, "--threads", "1")
        while not (out / ".waste-convert" / "run.json").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        self.expect(3, SOURCE, out, *CHEAP, says=f"pid {process.pid} ")
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.communicate()[1], "")
        self.assertEqual(process.returncode, 0)
        self.assertEqual(digests(out), self.expected)

    def test_full_disk_in_the_middle(self):
        def limit():  # a file may not grow past the banks' size: the trunk does
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

        out = self.dir / "out"
        self.expect(3, SOURCE, out, "--quiet", *CHEAP, says="trunk.bin.partial", preexec_fn=limit)
        self.expect(0, SOURCE, out, "--quiet", *CHEAP)
        self.assertEqual(digests(out), self.expected)

    def test_disk_that_cannot_hold_it_is_refused_before_the_first_byte(self):
        mount = self.dir / "small"
        mount.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mount], capture_output=True).returncode != 0:
            self.skipTest("mounting is not permitted")
        try:
            self.expect(3, SOURCE, mount / "out", "--quiet", *CHEAP, says="short")
            self.assertFalse((mount / "out" / "trunk.bin.partial").exists())
        finally:
            subprocess.run(["umount", mount], check=True)


if __name__ == "__main__":
    unittest.main()
