#!/usr/bin/python3
"""waste-verify simulate from the command line: a small trace with known answers, and the refusals."""
import json
import os
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

VERIFY = os.environ["WASTE_VERIFY"]


def run(*args):
    return subprocess.run([VERIFY, *args], capture_output=True, text=True)


class Simulate(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.trace = os.path.join(self.dir.name, "trace.bin")
        with open(self.trace, "wb") as f:
            for e in (7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1):
                f.write(struct.pack("<ii", 1, e))

    def test_json(self):
        result = run("simulate", self.trace, "--record-bytes", "1M", "--capacity", "3M,3999999,100M", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["requests"], report["distinct_experts"], report["tokens"]), (20, 6, None))
        small, floored, large = report["rows"]
        self.assertAlmostEqual(small["lru"], 8 / 20)
        self.assertAlmostEqual(small["belady"], 11 / 20)
        self.assertEqual((small["experts"], floored["experts"]), (3, 3))
        self.assertAlmostEqual(large["lru"], 14 / 20)
        self.assertAlmostEqual(large["lfru"], 14 / 20)
        self.assertAlmostEqual(large["pinned_lru"], 14 / 20)

    def test_table_and_plot(self):
        svg = os.path.join(self.dir.name, "hits.svg")
        result = run("simulate", "--plot", svg, self.trace, "--record-bytes=1M", "--capacity=3M,100M")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("40.00%", result.stdout)
        self.assertIn("55.00%", result.stdout)
        xml.etree.ElementTree.parse(svg)

    def test_refusals(self):
        for code, args in (
            (2, ["simulate"]),
            (2, ["simulate", self.trace, "--capacity", ""]),
            (2, ["simulate", self.trace, "--capacity", "8Q"]),
            (2, ["simulate", self.trace, "--record-bytes", "0"]),
            (2, ["simulate", self.trace, "--capacity", "0", "--plot", os.path.join(self.dir.name, "x.svg")]),
            (2, ["simulate", self.trace, "another"]),
            (1, ["simulate", os.path.join(self.dir.name, "absent")]),
            (3, ["simulate", self.trace, "--plot", os.path.join(self.dir.name, "no", "x.svg")]),
        ):
            result = run(*args)
            self.assertEqual(result.returncode, code, (args, result))
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
