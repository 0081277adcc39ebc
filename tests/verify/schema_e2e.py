#!/usr/bin/python3
"""verify/SCHEMA.md names every key that a command prints, in that command's section; every command has help with an
example."""
import os
import re
import unittest

from support import Case, ROOT, flip, run

LOOSE = {"relative_errors"}  # keys are the formats' names


def sections():
    with open(os.path.join(ROOT, "verify", "SCHEMA.md")) as f:
        parts = re.split(r"^## (\w+)$", f.read(), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in LOOSE:
                yield from keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner)


class Schema(Case):
    def test_every_key_is_documented(self):
        text = sections()
        good = self.sealed("tiny-linear.vq2.waste", "good.waste")
        bad = self.copy("tiny-linear.vq2.waste", "bad.waste")
        flip(os.path.join(bad, "experts-L1.bin"), 100, 0)
        flip(os.path.join(bad, "trunk.bin"), 100, 0)
        os.remove(os.path.join(bad, "experts-L2.bin"))
        trace = self.path("trace.jsonl")
        with open(trace, "w") as f:
            f.write('{"layers": [[1, 2]]}\n' * 3)
        plain = self.copy("tiny-linear.vq2.waste", "plain.waste")
        calls = {
            "check": (1, ["check", bad, "-q"]),
            "info": (0, ["info", good]),
            "seal": (0, ["seal", plain, "-q"]),
            "diff": (1, ["diff", good, self.copy("tiny-linear.waste", "other.waste"), "-q"]),
            "repair": (0, ["repair", bad, "--from", good, "-q"]),
            "copy": (0, ["copy", good, self.path("copy.waste"), "-q"]),
            "plan": (0, ["plan", good, "--like", "v0-f32", "--disk-gbs", "1"]),
            "disk": (0, ["disk", good, "--seconds", "0.01", "-q"]),
            "doctor": (0, ["doctor", "--models", self.dir]),
            "simulate": (0, ["simulate", trace, "--capacity", "1G"]),
        }
        self.assertEqual(set(calls), set(text))
        for command, (code, args) in calls.items():
            for key in set(keys(self.json(code, *args))):
                self.assertIn(f"`{key}`", text[command], command)

    def test_help(self):
        listed = re.findall(r"^  waste-verify (\w+) ", run("--help").stdout, flags=re.M)
        self.assertEqual(sorted(listed), sorted(sections()))
        for command in listed:
            result = run(command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn(f"\n  waste-verify {command} ", result.stdout)


if __name__ == "__main__":
    unittest.main()
