#!/usr/bin/python3
"""waste-verify simulate from the command line: a small trace with known answers, and the refusals."""
import struct
import unittest
import xml.etree.ElementTree

from support import Case


class Simulate(Case):
    def setUp(self):
        super().setUp()
        self.trace = self.path("trace.bin")
        with open(self.trace, "wb") as f:
            for e in (7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1):
                f.write(struct.pack("<ii", 1, e))

    def test_json(self):
        report = self.json(0, "simulate", self.trace, "--record-bytes", "1M", "--capacity", "3M,3999999,100M")
        self.assertEqual((report["requests"], report["distinct_experts"], report["tokens"]), (20, 6, None))
        small, floored, large = report["rows"]
        self.assertAlmostEqual(small["lru"], 8 / 20)
        self.assertAlmostEqual(small["belady"], 11 / 20)
        self.assertEqual((small["experts"], floored["experts"]), (3, 3))
        self.assertAlmostEqual(large["lru"], 14 / 20)
        self.assertAlmostEqual(large["lfru"], 14 / 20)
        self.assertAlmostEqual(large["pinned_lru"], 14 / 20)

    def test_table_and_plot(self):
        svg = self.path("hits.svg")
        text = self.ok("simulate", "--plot", svg, self.trace, "--record-bytes=1M", "--capacity=3M,100M")
        self.assertIn("40.00%", text)
        self.assertIn("55.00%", text)
        xml.etree.ElementTree.parse(svg)

    def test_refusals(self):
        self.refused(2, "simulate")
        self.refused(2, "simulate", self.trace, "--capacity", "")
        self.refused(2, "simulate", self.trace, "--capacity", "8Q")
        self.refused(2, "simulate", self.trace, "--record-bytes", "0")
        self.refused(2, "simulate", self.trace, "--capacity", "0", "--plot", self.path("x.svg"))
        self.refused(2, "simulate", self.trace, "another")
        self.refused(1, "simulate", self.path("absent"))
        self.refused(3, "simulate", self.trace, "--plot", self.path("no", "x.svg"))


if __name__ == "__main__":
    unittest.main()
