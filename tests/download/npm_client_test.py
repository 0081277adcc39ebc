#!/usr/bin/env python3
"""A real client agrees: the @huggingface/hub package from npm downloads from the same Hub, its cache is imported
without a request for a body, and it accepts what waste-download wrote without one."""

import json
import os
import pathlib
import subprocess
import sys

import harness
from harness import SHARD, Case, content

PACKAGE = "@huggingface/hub@2.17.5"
NPM_DIR = pathlib.Path(os.environ["WASTE_NPM_DIR"])


def install():
    if (NPM_DIR / "node_modules" / "@huggingface" / "hub").is_dir():
        return
    NPM_DIR.mkdir(parents=True, exist_ok=True)
    (NPM_DIR / "package.json").write_text('{"private": true}\n')
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE], cwd=NPM_DIR,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit("npm cannot install %s:\n%s" % (PACKAGE, done.stdout))


class Client(Case):
    files = {SHARD: content(1, 3_000_000), "config.json": b'{"a": 1}\n', "tokenizer.model": content(2, 300_000)}

    def setUp(self):
        super().setUp()
        self.hub.cdn_etag = True
        self.cache = self.dir / "hub-cache"

    def client(self, *arguments):
        script = pathlib.Path(__file__).with_name("npm_client.mjs")
        done = subprocess.run(["node", script, *map(str, arguments)], text=True, capture_output=True, timeout=120,
                              env=self.environment(WASTE_NPM_DIR=str(NPM_DIR)))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def scan(self):
        found = json.loads(self.client("scan", self.cache))
        self.assertEqual(found["warnings"], [])
        repo, = found["repos"]
        self.assertEqual(repo["id"], {"name": "org/model", "type": "model"})
        self.assertEqual(repo["size"], self.size())
        revision, = repo["revisions"]
        self.assertEqual((revision["commit"], revision["refs"]), (self.repo.commit, ["main"]))
        self.assertEqual(len(revision["files"]), len(self.files))
        return found

    def bodies(self):
        return self.hub.bytes_asked("cdn") + self.hub.bytes_asked("resolve-cache")

    def test_its_cache_is_imported_without_a_body_request(self):
        snapshot = pathlib.Path(self.client("snapshot", self.hub.endpoint, "org/model", self.cache))
        for path, data in self.files.items():
            self.assertTrue((snapshot / path).read_bytes() == data, path)
        self.assertGreaterEqual(self.bodies(), self.size())
        before = self.scan()
        self.hub.clear_log()
        self.assert_ok(self.download(env={"HF_HUB_CACHE": str(self.cache)}))
        self.assertEqual(self.bodies(), 0)
        self.assertEqual(self.scan(), before, "the cache is as it was")

    def test_it_accepts_what_we_wrote(self):
        self.assert_ok(self.download())
        # The folder in the form of the client's cache, under the digests that our metadata names.
        root = self.cache / "models--org--model"
        snapshot = root / "snapshots" / self.repo.commit
        for folder in (root / "blobs", root / "refs", snapshot):
            folder.mkdir(parents=True)
        (root / "refs" / "main").write_text(self.repo.commit)
        for path in self.files:
            metadata = self.to / ".cache" / "huggingface" / "download" / (path + ".metadata")
            blob = root / "blobs" / metadata.read_text().splitlines()[1]
            os.link(self.to / path, blob)
            (snapshot / path).symlink_to(os.path.relpath(blob, snapshot))
        self.scan()
        self.hub.clear_log()
        self.assertEqual(self.client("snapshot", self.hub.endpoint, "org/model", self.cache), str(snapshot))
        self.assertTrue(self.hub.requests("tree"))
        self.assertEqual(self.bodies(), 0)


if __name__ == "__main__":
    install()
    harness.main()
