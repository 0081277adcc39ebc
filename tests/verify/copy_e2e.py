#!/usr/bin/python3
"""waste-verify copy and diff from the command line."""
import filecmp
import os
import resource
import signal
import struct
import subprocess
import time
import unittest
import zlib

from support import Case, VERIFY, allocated, flip, interrupt, run, size

RECORD = 8192
SMALL = ("--headers", "--layers", "2", "--expert-count", "4")


class Copy(Case):
    def same(self, a, b):
        names = sorted(n for n in os.listdir(a) if not n.startswith("."))
        self.assertEqual(sorted(os.listdir(b)), names)
        self.assertEqual(filecmp.cmpfiles(a, b, names, shallow=False), (names, [], []))

    def test_copies_are_equal(self):
        for i, make in enumerate((self.sealed, self.copy)):
            source = make("tiny-k3.waste", f"{i}.waste")
            for j, options in enumerate(([], ["--no-reflink"])):
                target = self.path(f"{i}-{j}", "copy.waste")
                report = self.json(0, "copy", source, target, *options)
                self.assertTrue(report["finished"])
                self.same(source, target)

    def test_killed_and_resumed(self):
        source = self.sealed("tiny-k3.waste")
        for i, delay in enumerate((0, 0.005, 0.01, 0.02, 0.03, 0.05)):
            target = self.path(f"{i}.waste")
            process = subprocess.Popen([VERIFY, "copy", source, target, "-q", "--no-reflink"], stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            process.wait()
            if os.path.exists(os.path.join(target, "manifest.json")):
                self.refused(2, "copy", source, target)
            else:
                self.ok("copy", source, target, "-q", "--no-reflink")
            for name in os.listdir(target):
                if name.startswith(".copy-"):  # the kill came after the manifest
                    os.remove(os.path.join(target, name))
            self.same(source, target)

    def test_a_damaged_source_leaves_no_container(self):
        source, target = self.sealed("tiny-linear.vq2.waste"), self.path("copy.waste")
        good = self.path("good.waste")
        self.ok("copy", source, good)
        flip(os.path.join(source, "experts-L3.bin"), 2 * RECORD + 5, 0)
        for options in ([], ["--no-reflink"]):
            result = run("copy", source, target, *options)
            self.assertEqual(result.returncode, 1)
            self.assertIn("expert 2 of layer 3", result.stdout)
            self.assertFalse(os.path.exists(os.path.join(target, "manifest.json")))
        self.ok("repair", source, "--from", good)
        report = self.json(0, "copy", source, target, "--no-reflink")
        self.assertGreater(report["resumed_bytes"], 0)
        self.same(source, target)

    def test_holes_stay_holes(self):
        source, target = self.ghost("kimi-linear.json", *SMALL), self.path("copy.waste")
        self.ok("seal", source, "-q")
        self.ok("copy", source, target, "-q", "--no-reflink")
        self.ok("check", target, "-q")
        self.assertTrue(filecmp.cmp(os.path.join(source, "seal.waste"), os.path.join(target, "seal.waste"), shallow=False))
        self.assertGreater(sum(size(source, n) for n in os.listdir(source)), 500e6)
        for name in os.listdir(source):
            # A file system may give a few blocks more or less for its own records.
            self.assertLessEqual(allocated(target, name), allocated(source, name) + 65536, name)

    def test_refused_for_room_it_leaves_nothing(self):
        source, target = self.sealed("tiny-linear.waste"), self.path("new", "folder", "copy.waste")

        def limit():  # no file may grow to the trunk's size: it cannot be reserved
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

        result = run("copy", source, target, "--no-reflink", preexec_fn=limit)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1), result.stderr)
        self.assertIn("trunk.bin", result.stderr)
        self.assertFalse(os.path.exists(self.path("new")))

    def test_a_disk_that_cannot_hold_it(self):
        source, mount = self.sealed("tiny-linear.waste"), self.path("small")
        ghost = self.ghost("kimi-linear.json", *SMALL)
        os.mkdir(mount)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mount], capture_output=True).returncode != 0:
            self.skipTest("mounting is not permitted")
        try:
            self.assertIn("are to be written", self.refused(3, "copy", source, os.path.join(mount, "copy.waste")))
            self.assertEqual(os.listdir(mount), [])
            self.assertIn("are to be written", self.refused(3, "copy", source, mount))  # an empty folder stays
            self.assertEqual(os.listdir(mount), [])
            self.ok("copy", ghost, mount, "-q")  # its holes take no room
        finally:
            subprocess.run(["umount", mount], check=True)

    def test_interrupted_it_says_how_to_go_on(self):
        source = self.ghost("kimi-linear.json", "--headers", "--layers", "14")
        self.ok("seal", source, "-q")
        for command in (["copy", source, self.path("copy.waste")], ["repair", source, "--from", self.dir]):
            process = subprocess.Popen([VERIFY, *command, "-q"], stdout=subprocess.PIPE)
            out = interrupt(process, 100e6)
            self.assertEqual(process.returncode, 5, command)
            self.assertIn(b"interrupted; run this again to go on", out)
            self.assertNotIn(b"nothing to repair", out)

    def test_refusals(self):
        source = self.sealed("tiny-linear.vq2.waste")
        self.refused(2, "copy", source)
        self.refused(2, "copy", source, source)
        self.refused(1, "copy", self.path("absent"), self.path("x"))
        os.mkdir(self.path("full"))
        with open(self.path("full", "mine"), "w") as f:
            f.write("mine")
        self.refused(2, "copy", source, self.path("full"))
        self.assertEqual(os.listdir(self.path("full")), ["mine"])
        os.truncate(os.path.join(source, "trunk.bin"), 100)
        self.assertIn("repair it first", self.refused(1, "copy", source, self.path("x")))


class Diff(Case):
    def setUp(self):
        super().setUp()
        self.a, self.b = (self.copy("tiny-linear.vq2.waste", n) for n in ("a.waste", "b.waste"))

    def test_same(self):
        report = self.json(0, "diff", self.a, self.b)
        self.assertTrue(report["same"])
        self.assertIn("the same", self.ok("diff", self.a, self.b))

    def test_where_and_by_how_much(self):
        bank = os.path.join(self.b, "experts-L2.bin")
        with open(bank, "r+b") as f:  # double the first scale of the gate of expert 3, under a crc that agrees
            data = bytearray(f.read()[3 * RECORD:4 * RECORD])
            at = struct.unpack_from("<I", data, 32)[0]
            scale = struct.unpack_from("<e", data, at)[0]
            struct.pack_into("<e", data, at, 2 * scale)
            end = at + 2 * (64 + 64 + 128)
            struct.pack_into("<I", data, 36, zlib.crc32(data[48:end]))
            f.seek(3 * RECORD)
            f.write(data)
        flip(os.path.join(self.b, "specials.json"), 30, 0)
        report = self.json(1, "diff", self.a, self.b)
        self.assertEqual([(e["layer"], e["expert"]) for e in report["experts"]], [(2, 3)])
        self.assertGreater(report["experts"][0]["w1"]["relative"], 0)
        self.assertEqual(report["experts"][0]["w2"], {"relative": 0.0, "largest": 0.0})
        self.assertEqual(report["tensors"], [])
        self.assertEqual(report["documents"], ["specials.json: other bytes"])

    def test_a_tensor(self):
        manifest = self.json(0, "info", self.a)  # both open
        self.assertEqual(manifest["layers"], 5)
        with open(os.path.join(self.b, "trunk.bin"), "r+b") as f:
            f.seek(-4, os.SEEK_END)
            last = struct.unpack("<f", f.read(4))[0]
            f.seek(-4, os.SEEK_END)
            f.write(struct.pack("<f", last + 0.5))
        report = self.json(1, "diff", self.a, self.b)
        self.assertEqual(len(report["tensors"]), 1)
        self.assertAlmostEqual(report["tensors"][0]["difference"]["largest"], 0.5, places=5)

    def test_which_side_is_damaged(self):
        """Each side is judged by its own seal, in a bank, the trunk, the books and a sidecar."""
        for folder in (self.a, self.b):
            self.ok("seal", folder)
        self.assertTrue(self.json(0, "diff", self.a, self.b)["second_sealed"])
        flip(os.path.join(self.a, "experts-L1.bin"), 3 * RECORD + 500, 0)
        flip(os.path.join(self.b, "experts-L4.bin"), 2 * RECORD + 500, 0)
        flip(os.path.join(self.b, "trunk.bin"), size(self.b, "trunk.bin") - 1, 0)
        flip(os.path.join(self.b, "codebooks.bin"), 16 + 2 * 8, 0)  # a value of the first book, of layer 1
        with open(os.path.join(self.a, "specials.json"), "a") as f:
            f.write(" ")
        report = self.json(1, "diff", self.a, self.b)
        experts = {(e["layer"], e["expert"]): e for e in report["experts"]}
        self.assertEqual(set(experts), {(1, e) for e in range(16)} | {(4, 2)})
        first, second = experts[1, 3], experts[4, 2]
        self.assertIn("crc32", first["first_damage"])
        self.assertIn("crc32", first["problem"])
        self.assertEqual(first["second_damage"], "")
        self.assertEqual(second["first_damage"], "")
        self.assertIn("XXH3-128: sealed", second["second_damage"])
        sound = experts[1, 0]  # other books under the same bytes
        self.assertEqual((sound["first_damage"], sound["second_damage"]), ("", ""))
        self.assertGreater(sound["w1"]["largest"], 0)
        self.assertEqual(sound["w2"]["largest"], 0)
        self.assertEqual(len(report["tensors"]), 1)
        self.assertEqual(report["tensors"][0]["first_damage"], "")
        self.assertIn("XXH3-128: sealed", report["tensors"][0]["second_damage"])
        books, sidecar = sorted(report["documents"])
        self.assertRegex(books, "codebooks.bin: books of layers 1; damaged in the second: XXH3")
        self.assertRegex(sidecar, r"specials.json: other bytes; damaged in the first: \d+ bytes, expected")
        text = run("diff", self.a, self.b).stdout
        self.assertIn("expert 2 of layer 4: damaged in the second: XXH3-128", text)
        self.assertIn("compared with the seal of each", text)

    def test_holes(self):
        """Holes on both sides are left out, and only there."""
        ghost, other = self.ghost("kimi-linear.json", *SMALL), self.path("other.waste")
        self.ok("seal", ghost, "-q")
        self.ok("copy", ghost, other, "-q", "--no-reflink")
        report = self.json(0, "diff", ghost, other)
        self.assertGreater(report["hole_bytes"], 0.99 * report["bytes"])
        record = size(other, "experts-L1.bin") // 4
        with open(os.path.join(other, "experts-L1.bin"), "r+b") as f:
            f.seek(record - 9000)
            f.write(bytes(9000))  # the same zeros, no hole any more
            f.seek(3 * record + 700_001)
            f.write(b"\1")
        for a, b in ((ghost, other), (other, ghost)):
            report = self.json(1, "diff", a, b)
            self.assertEqual([(e["layer"], e["expert"]) for e in report["experts"]], [(1, 3)])
            self.assertEqual([bool(report["experts"][0][f"{side}_damage"]) for side in ("first", "second")],
                             [a == other, b == other])

    def test_recipes(self):
        other = self.copy("tiny-linear.waste", "c.waste")
        report = self.json(1, "diff", self.a, other, "--experts", "1")
        self.assertEqual(len(report["experts"]), 4 * 16)
        decoded = [e for e in report["experts"] if e["w1"] is not None]
        self.assertEqual([(e["layer"], e["expert"]) for e in decoded], [(n, 0) for n in (1, 2, 3, 4)])
        for e in decoded:
            self.assertLess(e["w1"]["relative"], 0.6)
        self.assertEqual(report["documents"], ["recipe: VQ2R and VQ3R"])

    def test_refusals(self):
        self.refused(2, "diff", self.a)
        self.refused(1, "diff", self.a, self.path("absent"))
        self.refused(2, "diff", self.a, self.b, "--experts", "-1")
        self.assertIn("different shapes", self.refused(1, "diff", self.a, self.copy("tiny-k3.waste", "k3.waste")))


if __name__ == "__main__":
    unittest.main()
