#!/usr/bin/python3
"""waste-verify disk from the command line: what it reports, what it leaves behind, what it refuses."""
import os
import unittest

from support import Case


class Disk(Case):
    def test_scratch(self):
        report = self.json(0, "disk", self.dir, "--scratch", "4M", "--record-bytes", "100000", "--seconds", "0.01", "-q")
        self.assertEqual(os.listdir(self.dir), [])
        self.assertEqual(report["record_bytes"], 102400)
        self.assertIsNone(report["bytes_a_token"])
        self.assertEqual([(r["order"], r["depth"]) for r in report["rows"]],
                         [(o, d) for o in ("sequential", "random") for d in (1, 2, 4, 8, 16, 32)])
        for row in report["rows"]:
            self.assertGreater(row["gb_per_s"], 0)
            self.assertNotIn("uncached_tokens_per_s", row)

    def test_container(self):
        folder = self.copy("tiny-linear.waste", "x.waste")
        report = self.json(0, "disk", folder, "--seconds", "0.01", "-q")
        self.assertEqual((report["record_bytes"], report["bytes_a_token"]), (12288, 4 * 4 * 12288))
        self.assertFalse(report["sparse"])
        row = report["rows"][0]
        self.assertAlmostEqual(row["uncached_tokens_per_s"], row["gb_per_s"] * 1e9 / report["bytes_a_token"])
        self.assertIn("what limits", self.ok("disk", folder, "--seconds", "0.01", "-q"))

    def test_refusals(self):
        folder = self.copy("tiny-linear.waste", "x.waste")
        self.refused(1, "disk", self.path("absent"))
        self.refused(2, "disk", self.dir, "--record-bytes", "0")
        self.refused(2, "disk", folder, "--record-bytes", "4096")
        self.refused(2, "disk", self.dir, "--seconds", "0")
        self.assertIn("free", self.refused(3, "disk", self.dir, "--scratch", "1000T"))
        self.assertEqual(os.listdir(self.dir), ["x.waste"])


if __name__ == "__main__":
    unittest.main()
