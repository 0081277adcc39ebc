#!/usr/bin/env python3
"""SIGKILL at 40 random instants of a download of 8 files and 200 MB over 4 x 4 connections: the result is right, no
run asks for a block that an earlier one journalled, and what is fetched beyond the size is at most one block a
connection and kill."""

import random
import signal
import struct
import time
import zlib

import harness
from harness import Case, block_size, content

KILLS = 40
CONNECTIONS = 4 * 4
FILES = 8
SIZE = 25_000_000


class Kill(Case):
    files = {"model-%05d.safetensors" % i: content(i, SIZE) for i in range(FILES)}
    cdn_rate = 1_500_000

    def journalled(self):
        """For each file, the bytes that its journal vouches for, as download/journal.h describes it."""
        known = {}
        for path in self.files:
            try:
                data = (self.to / ".cache/waste-download/journal" / (path + ".journal")).read_bytes()
            except FileNotFoundError:
                continue
            if len(data) < 60:
                continue
            self.assertEqual(data[:8], b"WDJRNL01")
            size, block = struct.unpack("<QI", data[8:20])
            self.assertEqual((size, block), (SIZE, block_size(SIZE)))
            blocks = {}
            for at in range(60, len(data) - 15, 16):
                index, count, _, check = struct.unpack("<IIII", data[at:at + 16])
                if zlib.crc32(data[at:at + 12]) != check:
                    break
                blocks[index] = count
            known[path] = {i * block: i * block + n for i, n in blocks.items()}
        return known

    def assert_only_missing_asked(self, known):
        for request in self.hub.requests("cdn"):
            first, last = map(int, request["range"][6:].split("-"))
            for begin, end in known.get(request["path"].split("/")[-1], {}).items():
                overlap = min(last + 1, end) - max(first, begin)
                self.assertLessEqual(overlap, 0, "%s asks again for bytes %d-%d" % (request["path"], begin, end))

    def test_killed_at_random_instants(self):
        seed = random.randrange(2 ** 32)
        print("seed", seed)
        dice = random.Random(seed)
        sent = 0
        killed = 0
        for _ in range(KILLS):
            known = self.journalled()
            # Instants are spread over what arrives, so that a slow machine is killed as often as a fast one.
            target = dice.uniform(0, 10_000_000)
            process = self.start("org/model", "--to", self.to)
            deadline = time.monotonic() + 60
            while self.hub.bytes_sent("cdn") < target and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(dice.uniform(0, 0.02))
            killed += process.poll() is None
            process.send_signal(signal.SIGKILL)
            process.communicate()
            self.assert_only_missing_asked(known)
            sent += self.hub.bytes_sent("cdn")
            self.hub.clear_log()
        self.hub.cdn_rate = None
        known = self.journalled()
        self.assert_ok(self.download())
        self.assert_only_missing_asked(known)
        sent += self.hub.bytes_sent("cdn")
        total = FILES * SIZE
        print("%d kills, %.1f MB fetched for %.1f MB" % (killed, sent / 1e6, total / 1e6))
        self.assertLessEqual(sent, total + killed * CONNECTIONS * block_size(SIZE))


if __name__ == "__main__":
    harness.main()
