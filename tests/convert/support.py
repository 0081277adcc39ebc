"""What the end-to-end tests of waste-convert share."""

import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
CONVERT = os.environ["WASTE_CONVERT"]
# The cheapest conversion: these tests are about files and states, not about how good the codes are.
CHEAP = ("--quality", "fast", "--codebook-sample", "1024")

sys.path.insert(0, str(ROOT / "tests"))


def run(*args, **kwargs):
    return subprocess.run([CONVERT, *map(str, args)], capture_output=True, text=True, **kwargs)


def digests(directory):
    """Name -> SHA-256 of every file, hidden folders left out."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in pathlib.Path(directory).iterdir() if p.is_file()}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="waste-convert-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def expect(self, code, *args, says="", **kwargs):
        """Runs, checks the exit code, and that an error is one line on stderr containing `says`."""
        result = run(*args, **kwargs)
        self.assertEqual(result.returncode, code, (args, result.stdout, result.stderr))
        if code != 0:
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertTrue(result.stderr.startswith("waste-convert: "), result.stderr)
            self.assertIn(says, result.stderr)
        return result

    def source(self, name="tiny-linear", to="source"):
        """A writable copy of a bundled checkpoint."""
        out = self.dir / to
        shutil.copytree(DATA / name, out, copy_function=shutil.copyfile)
        return out


class Shard:
    """A safetensors file taken apart, so that a test can change it and write it back."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        data = self.path.read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        self.header = json.loads(data[8:8 + length])
        self.data = bytearray(data[8 + length:])

    def write(self):
        text = json.dumps(self.header).encode()
        self.path.write_bytes(struct.pack("<Q", len(text)) + text + self.data)


def shard_of(source, tensor):
    index = json.loads((source / "model.safetensors.index.json").read_text())
    return Shard(source / index["weight_map"][tensor])
