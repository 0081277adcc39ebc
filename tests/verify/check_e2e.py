#!/usr/bin/python3
"""waste-verify check, info and seal from the command line."""
import concurrent.futures
import json
import os
import random
import subprocess
import unittest

from support import Case, VERIFY, flip, interrupt, run


def names_it(report, name, offset):
    """Whether a finding names the file, and the extent around `offset` where it names one."""
    return any(f["file"] == name and (f["offset"] is None or f["offset"] <= offset < f["offset"] + f["bytes"])
               for f in report["findings"])


def flip_many(folder, seed, count):
    """Flips one bit at a time and returns those that check did not name."""
    rng, missed = random.Random(seed), []
    names = sorted(os.listdir(folder))
    for i in range(count):
        name = names[i % len(names)]
        path = os.path.join(folder, name)
        offset, bit = rng.randrange(os.path.getsize(path)), rng.randrange(8)
        flip(path, offset, bit)
        result = run("check", folder, "--json", "--quiet")
        if result.returncode != 1 or not names_it(json.loads(result.stdout), name, offset):
            missed.append((name, offset, bit, result.returncode))
        flip(path, offset, bit)
    return missed


class Check(Case):
    def test_golden_containers_are_sound(self):
        for name in ("tiny-k3.waste", "tiny-linear.waste", "tiny-linear.vq2.waste", "tiny-linear.vq4p.waste"):
            folder = self.copy(name, name)
            before = self.json(0, "check", folder)
            self.assertTrue(before["sound"])
            self.assertFalse(before["sealed"])
            self.assertGreater(before["uncovered_bytes"], 0)
            sealed = self.json(0, "seal", folder)
            after = self.json(0, "check", folder)
            self.assertTrue(after["sealed"])
            self.assertEqual(after["uncovered_bytes"], 0)
            self.assertEqual(self.json(0, "info", folder)["weights_fingerprint"], sealed["weights_fingerprint"])
            self.refused(2, "seal", folder)

    def test_2000_flips(self):
        folders = [self.sealed("tiny-linear.vq2.waste", f"{i}.waste") for i in range(2)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for missed in pool.map(flip_many, folders, (1, 2), (1000, 1000)):
                self.assertEqual(missed, [])
        self.ok("check", folders[0])

    def test_report_names_layer_and_expert(self):
        folder = self.sealed("tiny-k3.waste")
        flip(os.path.join(folder, "experts-L3.bin"), 5 * 32768 + 100, 0)
        report = self.json(1, "check", folder)
        self.assertEqual([(f["layer"], f["expert"], f["offset"]) for f in report["findings"]], [(3, 5, 5 * 32768)])
        text = run("check", folder).stdout
        self.assertIn("experts-L3.bin: expert 5 of layer 3", text)
        self.assertIn("crc32", text)
        self.assertIn(f"waste-verify repair {folder} --from OTHER", text)

    def test_damage_is_not_sealed(self):
        folder = self.copy("tiny-linear.waste", "x.waste")
        flip(os.path.join(folder, "experts-L3.bin"), 100, 0)
        result = run("seal", folder)
        self.assertEqual(result.returncode, 1)
        self.assertFalse(os.path.exists(os.path.join(folder, "seal.waste")))

    def test_files_beside_the_seal(self):
        folder = self.sealed("tiny-linear.waste")
        with open(os.path.join(folder, "notes.txt"), "w") as f:
            f.write("mine")
        report = self.json(0, "check", folder)
        self.assertEqual(report["unsealed_files"], ["notes.txt"])
        self.assertEqual(report["uncovered_bytes"], 4)

    def test_info_tells_the_known_error(self):
        folder = self.copy("tiny-linear.waste", "x.waste")
        self.assertIsNone(self.json(0, "info", folder)["relative_errors"])
        with open(os.path.join(folder, "quality.json"), "w") as f:
            json.dump({"summary": {"w1": 0.125}}, f)
        self.assertEqual(self.json(0, "info", folder)["relative_errors"], {"w1": 0.125})
        self.assertIn("w1 0.1250", self.ok("info", folder))

    def test_refusals(self):
        self.refused(2, "check")
        self.refused(2, "check", self.dir, "--what")
        self.refused(1, "check", self.path("absent"))
        self.refused(1, "check", self.dir)
        self.refused(1, "info", self.dir)
        self.refused(1, "seal", self.dir)
        folder = self.sealed("tiny-linear.waste")
        self.refused(2, "check", folder, "--resume")
        with open(os.path.join(folder, ".check-state"), "w") as f:
            f.write("00\n{}")
        self.assertIn("damaged", self.refused(1, "check", folder, "--resume"))
        self.assertEqual(run("unknown").returncode, 2)


class Ghost(Case):
    """A container of real sizes: interrupted, resumed, and read in little memory."""

    def setUp(self):
        super().setUp()
        self.folder = self.ghost("kimi-k3.json")

    def interrupt(self, *args):
        process = subprocess.Popen([VERIFY, "check", self.folder, "--json", *args], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        out = interrupt(process, 500e6)
        self.assertEqual(process.returncode, 5)
        with open(os.path.join(self.folder, ".check-state")) as f:
            f.readline()
            return json.loads(out), json.load(f)["next"]

    def test_interrupt_and_resume(self):
        report, first = self.interrupt()
        self.assertFalse(report["finished"])
        self.assertGreater(first, 0)
        _, second = self.interrupt("--resume")
        self.assertGreater(second, first)
        bank = os.path.join(self.folder, "experts-L1.bin")
        os.utime(bank, (1, 1))
        self.assertIn("changed", self.refused(1, "check", self.folder, "--resume", "--quiet"))

    def test_info(self):
        info = self.json(0, "info", self.folder)
        self.assertEqual(info["recipe"]["record_bytes"], 12406784)
        self.assertEqual(info["parameters"]["total"], 2779931837184)
        self.assertEqual(info["bytes"]["experts_a_token"], 16 * 92 * 12406784)


if __name__ == "__main__":
    unittest.main()
