"""What the end-to-end tests of waste-download share: a Hub, a folder, the program, and what to say about them."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from hub_server import HubServer, content, git_sha1  # noqa: E402,F401

PROGRAM = os.environ["WASTE_DOWNLOAD"]
SHIM = os.environ.get("WASTE_DISK_SHIM", "")
OK, DATA, USAGE, MACHINE, NETWORK, INTERRUPTED = range(6)
TOKEN = "hf_SecretSecretSecret"
SHARD = "model.safetensors"


def block_size(size):
    """As download/journal.h: a sixty-fourth, rounded down to a power of two, from 256 KiB to 4 MiB."""
    block = 4 << 20
    while block > max(size // 64, 256 << 10):
        block //= 2
    return block


class Result:
    def __init__(self, code, stdout, stderr):
        self.code, self.stdout, self.stderr = code, stdout, stderr

    def events(self, name):
        return [e for e in map(json.loads, self.stdout.splitlines()) if e["event"] == name]


class Case(unittest.TestCase):
    """One Hub with one repository of a large and a small file, and one folder to fill, for each test."""

    files = {SHARD: content(1, 6_000_000), "config.json": b'{"model_type": "test"}\n'}
    token = None
    cdn_rate = None

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="waste-download-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.hub = self.make_hub()
        self.addCleanup(self.hub.close)
        self.repo = self.hub.add_repo("org/model", self.files)
        self.to = self.dir / "out"

    def make_hub(self):
        return HubServer(token=self.token, cdn_rate=self.cdn_rate)

    def environment(self, **more):
        keep = {k: v for k, v in os.environ.items()
                if not k.startswith(("HF_", "HUGGING", "LD_PRELOAD", "CURL_CA", "SSL_CERT")) and not k.lower().endswith("_proxy")}
        return {**keep, "HF_ENDPOINT": self.hub.endpoint, "HF_HOME": str(self.dir / "hf"), **more}

    def start(self, *arguments, env=None):
        return subprocess.Popen([PROGRAM, *map(str, arguments)], env=self.environment(**(env or {})),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_program(self, *arguments, env=None, timeout=60):
        process = self.start(*arguments, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail("waste-download hangs; so far it said: %s" % (process.communicate(),))
        for secret in (TOKEN, "X-Signature"):
            self.assertNotIn(secret, out + err)
        return Result(process.returncode, out, err)

    def download(self, *options, repo="org/model", env=None, timeout=60):
        return self.run_program(repo, "--to", self.to, *options, env=env, timeout=timeout)

    def assert_ok(self, result):
        self.assertEqual(result.code, OK, result.stderr)
        self.assert_complete()

    def assert_fails(self, result, code, *texts):
        self.assertEqual(result.code, code, result.stderr + result.stdout)
        last = result.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("waste-download: "), last)
        for text in texts:
            self.assertIn(text, last)

    def assert_complete(self, files=None):
        for path, data in (files or self.files).items():
            self.assertTrue((self.to / path).is_file(), path)
            self.assertTrue((self.to / path).read_bytes() == data, "%s has other bytes" % path)
            self.assertFalse((self.to / (path + ".partial")).exists(), path)
        self.assert_hf_accepts(files)

    def assert_hf_accepts(self, files=None):
        """What `hf` asks of a folder before it trusts it without a request."""
        state = self.to / ".cache" / "huggingface"
        self.assertEqual((state / ".gitignore").read_text(), "*")
        for path in files or self.files:
            commit, etag, time = (state / "download" / (path + ".metadata")).read_text().splitlines()
            self.assertEqual(commit, self.repo.commit)
            expected = self.repo.sha256 if self.repo.is_lfs(path) else self.repo.git_sha1
            self.assertEqual(etag, expected[path])
            self.assertLessEqual((self.to / path).stat().st_mtime, float(time) + 1)

    def assert_absent(self, path=SHARD):
        self.assertFalse((self.to / path).exists(), "%s has its final name" % path)

    def size(self):
        return sum(map(len, self.files.values()))


def all_tests(suite):
    for item in suite:
        yield from all_tests(item) if isinstance(item, unittest.TestSuite) else (item,)


def main():
    """Runs the tests of the calling script several at a time: they mostly wait for back-offs and timeouts. Names on
    the command line select tests."""
    loader = unittest.defaultTestLoader
    module = sys.modules["__main__"]
    names = sys.argv[1:]
    suite = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)

    def run(test):
        result = unittest.TestResult()
        begin = time.monotonic()
        test.run(result)
        return test, result, time.monotonic() - begin

    bad = 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for test, result, seconds in pool.map(run, all_tests(suite)):
            print("%-75s %5.1f s  %s" % (test.id().replace("__main__.", ""), seconds,
                                         "ok" if result.wasSuccessful() else "FAILED"), flush=True)
            for _, trace in result.failures + result.errors:
                bad += 1
                print(trace, flush=True)
    sys.exit(1 if bad else 0)
