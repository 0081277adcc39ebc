#!/usr/bin/python3
"""waste-verify doctor: the page, its models, and that it leaves nothing behind."""
import os
import subprocess
import unittest

from support import Case, ROOT


class Doctor(Case):
    def test_page(self):
        self.copy("tiny-k3.waste", "tiny.waste")
        os.mkdir(self.path("broken.waste"))
        with open(self.path("broken.waste", "manifest.json"), "w") as f:
            f.write("{}")
        subprocess.run([os.path.join(ROOT, "scripts", "make-ghost-container"),
                        os.path.join(ROOT, "tests", "data", "configs", "kimi-k3.json"), self.path("k3.waste")],
                       check=True, stdout=subprocess.DEVNULL)
        names = sorted(os.listdir(self.dir))
        page = self.json(0, "doctor", "--models", self.dir)
        self.assertEqual(sorted(os.listdir(self.dir)), names)
        broken, k3, tiny = page["models"]
        self.assertIn("format_version", broken["problem"])
        self.assertEqual((k3["arch"], tiny["arch"]), ("kimi-k3", "kimi-k3"))
        self.assertGreater(k3["floor_bytes"], 28e9)
        self.assertTrue(tiny["fits"])
        self.assertGreater(tiny["tokens_per_s"], k3["tokens_per_s"])
        self.assertTrue(any("tiny.waste is not sealed" in a for a in page["advice"]))
        self.assertGreater(page["disk"]["random_gb_per_s"], 0)
        self.assertGreater(page["memory"]["physical_bytes"], 0)
        self.assertGreaterEqual(page["cpu"]["usable"], 1)

    def test_text_and_refusals(self):
        text = self.ok("doctor", "--models", self.dir)
        self.assertIn("none in", text)
        self.assertIn("what to change:", text)
        self.refused(1, "doctor", "--models", self.path("absent"))
        self.refused(2, "doctor", "extra")


if __name__ == "__main__":
    unittest.main()
