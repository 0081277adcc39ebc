"""What the end-to-end tests of waste-verify share."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

VERIFY = os.environ["WASTE_VERIFY"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "tests", "data", "golden")


def run(*args, **kwargs):
    return subprocess.run([VERIFY, *map(str, args)], capture_output=True, text=True, **kwargs)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="waste-verify-")
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def copy(self, name, to):
        """A writable copy of a golden container."""
        out = self.path(to)
        shutil.copytree(os.path.join(GOLDEN, name), out, copy_function=shutil.copyfile)
        return out

    def sealed(self, name, to="sealed.waste"):
        out = self.copy(name, to)
        self.ok("seal", out)
        return out

    def ghost(self, config, *options):
        """A container of a model's real sizes whose files are holes."""
        out = self.path("ghost.waste")
        subprocess.run([os.path.join(ROOT, "scripts", "make-ghost-container"),
                        os.path.join(ROOT, "tests", "data", "configs", config), out, *options],
                       check=True, stdout=subprocess.DEVNULL)
        return out

    def ok(self, *args):
        result = run(*args)
        self.assertEqual(result.returncode, 0, (args, result.stdout, result.stderr))
        return result.stdout

    def json(self, code, *args):
        result = run(*args, "--json")
        self.assertEqual(result.returncode, code, (args, result.stdout, result.stderr))
        return json.loads(result.stdout)

    def refused(self, code, *args):
        """Exits with `code` and exactly one line on stderr."""
        result = run(*args)
        self.assertEqual(result.returncode, code, (args, result.stdout, result.stderr))
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        return result.stderr


def interrupt(process, after):
    """Sends SIGINT once the process has read so many bytes: it is at work, and catches the signal. Its output."""
    read, deadline = 0, time.monotonic() + 60
    while read < after and time.monotonic() < deadline:
        time.sleep(0.01)
        with open(f"/proc/{process.pid}/io") as f:
            read = int(f.readline().split()[1])
    process.send_signal(signal.SIGINT)
    return process.communicate()[0]


def size(folder, name):
    return os.path.getsize(os.path.join(folder, name))


def allocated(folder, name):
    return os.stat(os.path.join(folder, name)).st_blocks * 512


def flip(path, offset, bit):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1 << bit]))
