#!/usr/bin/env python3
"""The folder that is filled: wrong bytes, full and read-only disks, other processes, checks and repairs, offline
mode, the shared cache, the choice of files, and what progress says."""

import json
import os
import re
import shutil
import signal
import time

import harness
from harness import DATA, INTERRUPTED, MACHINE, NETWORK, OK, SHARD, SHIM, USAGE, Case, block_size, content


def damage(path, offset):
    with open(path, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 0x10]))


class Integrity(Case):
    def test_flipped_bit_on_the_way_is_fetched_again(self):
        for times in (1, 2):
            with self.subTest(times=times):
                self.to = self.dir / str(times)
                self.hub.clear_log()
                self.hub.fault("cdn", flip=4_000_000, times=times, extra_headers={"X-Only": "ranges that cover it"})
                self.hub.faults[-1].matches = self.only_covering(4_000_000, times)
                result = self.download("--json")
                self.assert_ok(result)
                self.assertEqual(len([e for e in result.events("file") if e["state"] == "refetching"]), times)
                self.assertEqual(self.hub.bytes_asked("cdn"), (times + 1) * len(self.files[SHARD]))

    def only_covering(self, offset, times):
        state = {"left": times}

        def matches(where, path):
            if where != "cdn" or state["left"] == 0:
                return False
            first, last = map(int, self.hub.log[-1]["range"][6:].split("-"))
            if not first <= offset <= last:
                return False
            state["left"] -= 1
            return True
        return matches

    def test_bit_that_stays_wrong(self):
        self.hub.fault("cdn", flip=5_999_999, times=100000)
        result = self.download()
        self.assert_fails(result, DATA, SHARD, self.repo.sha256[SHARD])
        found = re.search(r"SHA-256 is ([0-9a-f]{64})", result.stderr.splitlines()[-1])[1]
        self.assertNotEqual(found, self.repo.sha256[SHARD])
        self.assert_absent()
        self.assertFalse((self.to / (SHARD + ".partial")).exists())
        self.assertEqual(self.hub.bytes_asked("cdn"), 3 * len(self.files[SHARD]))
        # The others are there all the same, and a good server is all that the next run needs.
        self.assertEqual((self.to / "config.json").read_bytes(), self.files["config.json"])
        self.hub.faults.clear()
        self.assert_ok(self.download())

    def test_small_file_with_wrong_git_sha1(self):
        self.hub.fault("resolve-cache", flip=0, times=100000)
        self.assert_fails(self.download(), DATA, "config.json", "git SHA-1", self.repo.git_sha1["config.json"])
        self.assert_absent("config.json")

    def test_damage_to_the_partial_costs_one_block(self):
        self.hub.fault("cdn", reset=True, after=1, times=1000)
        self.assert_fails(self.download("--connections", 1, "--retries", 0), NETWORK)
        partial = self.to / (SHARD + ".partial")
        arrived = self.hub.bytes_sent("cdn")
        self.assertGreater(arrived, 1_000_000)
        damage(partial, 300_000)
        self.hub.faults.clear()
        self.hub.clear_log()
        result = self.download("--json", "--connections", 1)
        self.assert_ok(result)
        self.assertLessEqual(self.hub.bytes_asked("cdn"),
                             len(self.files[SHARD]) - arrived + 2 * block_size(len(self.files[SHARD])))


class Disk(Case):
    def test_full_in_the_middle(self):
        result = self.download(env={"LD_PRELOAD": SHIM, "WASTE_SHIM_DISK_BYTES": "3000000"})
        self.assert_fails(result, MACHINE, "No space left", "run again")
        self.assert_absent()
        self.hub.clear_log()
        self.assert_ok(self.download())
        self.assertLess(self.hub.bytes_asked("cdn"), len(self.files[SHARD]) - 1_000_000)

    def test_not_enough_before_the_first_byte(self):
        self.repo.extra_entries = [{"type": "file", "path": "huge.safetensors", "size": 2 ** 43, "oid": "0" * 40,
                                    "lfs": {"oid": "0" * 64, "size": 2 ** 43}}]
        result = self.download()
        self.assert_fails(result, MACHINE, "not enough disk", "8.80 TB", "--layers")
        self.assertEqual(self.hub.requests("resolve"), [])

    def test_read_only_folder(self):
        result = self.download(env={"LD_PRELOAD": SHIM, "WASTE_SHIM_READ_ONLY": str(self.to)})
        self.assert_fails(result, MACHINE, str(self.to), "Read-only", "--to")
        self.assertEqual(self.hub.requests(), [])

    def test_not_a_folder(self):
        self.to.write_text("a file")
        self.assert_fails(self.download(), MACHINE, str(self.to))
        self.assertEqual(self.to.read_text(), "a file")


class Processes(Case):
    cdn_rate = 300_000

    def wait_for(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_second_process_leaves_naming_the_first_and_a_dead_one_is_taken_over(self):
        first = self.start("org/model", "--to", self.to)
        self.wait_for(lambda: self.hub.requests("cdn"))
        second = self.download()
        self.assert_fails(second, MACHINE, "pid %d on " % first.pid, "since ")
        first.send_signal(signal.SIGKILL)
        first.communicate()
        self.hub.cdn_rate = None
        self.assert_ok(self.download())

    def test_interrupt_saves_every_byte(self):
        first = self.start("org/model", "--to", self.to, "--connections", "1")
        self.wait_for(lambda: self.hub.bytes_sent("cdn") > 200_000)
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=30)
        self.assertEqual(first.returncode, INTERRUPTED, err)
        self.assertIn("run again", err)
        sent = self.hub.bytes_sent("cdn")
        self.hub.cdn_rate = None
        self.hub.clear_log()
        self.assert_ok(self.download())
        # Not a block: what may be lost is what lay in the socket.
        self.assertLess(self.hub.bytes_asked("cdn"), len(self.files[SHARD]) - sent + 150_000)

    def test_parts_of_files_whose_turn_has_not_come_count_as_present(self):
        self.files = {"model-%d.safetensors" % i: content(i, 2_000_000) for i in range(6)}
        self.repo = self.hub.add_repo("org/model", self.files)
        first = self.start("org/model", "--to", self.to, "--files", "6", "--connections", "1")
        self.wait_for(lambda: self.hub.bytes_sent("cdn") > 3_000_000)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)
        result = self.download("--json", "--files", "1", "--connections", "4")
        self.assert_ok(result)
        progress = result.events("progress")
        plan, = result.events("plan")
        self.assertGreater(plan["present_bytes"], 2_500_000)
        self.assertEqual(progress[0]["done"], plan["present_bytes"])
        for before, after in zip(progress, progress[1:]):
            self.assertGreaterEqual(after["done"], before["done"])
            self.assertLess(after["rate"], 100_000_000)

    def test_progress_counts_only_what_arrives(self):
        self.hub.cdn_rate = 1_000_000
        first = self.start("org/model", "--to", self.to, "--connections", "2")
        self.wait_for(lambda: self.hub.bytes_sent("cdn") > 3_000_000)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)
        sent = self.hub.bytes_sent("cdn")
        begin = time.monotonic()
        result = self.download("--json", "--connections", "2")
        seconds = time.monotonic() - begin
        self.assert_ok(result)
        progress = result.events("progress")
        total = sum(map(len, self.files.values()))
        self.assertGreaterEqual(len(progress), 2)
        self.assertGreater(progress[0]["done"], 1_000_000)
        self.assertEqual(progress[0]["rate"], 0, "what was there already is not speed")
        for before, after in zip(progress, progress[1:]):
            self.assertGreaterEqual(after["done"], before["done"])
        for event in progress:
            self.assertEqual(event["total"], total)
            self.assertLessEqual(event["done"], total)
            self.assertTrue(event["eta"] is None or event["eta"] >= 0)
            # What arrives in this run, in one second at the earliest.
            self.assertLessEqual(event["rate"], total - sent + 300_000)
        plan, = result.events("plan")
        self.assertEqual(plan["bytes"], total)
        self.assertGreater(plan["present_bytes"], 1_000_000)
        finished, = result.events("finished")
        self.assertLessEqual(finished["seconds"], seconds)


class Check(Case):
    files = {**Case.files, "extra.safetensors": content(5, 5_000_000)}

    def check(self, *options, env=None):
        return self.run_program("check", self.to, *options, env=env)

    def test_all_good_without_a_network(self):
        self.assert_ok(self.download())
        self.hub.clear_log()
        result = self.check(env={"HF_ENDPOINT": "http://127.0.0.1:9"})
        self.assertEqual(result.code, OK)
        self.assertIn("3 files", result.stderr)
        self.assertEqual(self.hub.requests(), [])

    def test_damage_and_repair_by_block(self):
        self.assert_ok(self.download())
        damage(self.to / SHARD, 2_000_000)
        (self.to / "config.json").unlink()
        os.truncate(self.to / "extra.safetensors", 4_000_000)
        self.hub.clear_log()
        result = self.check()
        self.assert_fails(result, DATA, "3 of 3", "--fix")
        for text in (SHARD + ": damaged: SHA-256 is", "config.json: missing",
                     "extra.safetensors: damaged: 4000000 bytes, expected 5000000"):
            self.assertIn(text, result.stderr)
        self.assertEqual(self.hub.requests(), [])
        fixed = self.check("--fix")
        self.assertEqual(fixed.code, OK, fixed.stderr)
        self.assert_complete()
        block = block_size(6_000_000)
        self.assertEqual(self.hub.bytes_asked("cdn", SHARD.replace(".", r"\.") + "$"), block)
        self.assertLess(self.hub.bytes_asked("cdn", "extra"), 1_000_000 + 2 * block)
        self.assertEqual(self.check().code, OK)

    def test_repair_without_a_journal_fetches_the_file(self):
        self.assert_ok(self.download())
        shutil.rmtree(self.to / ".cache" / "waste-download" / "journal")
        damage(self.to / SHARD, 10)
        self.hub.clear_log()
        self.assertEqual(self.check("--fix").code, OK)
        self.assert_complete()
        self.assertEqual(self.hub.bytes_asked("cdn"), len(self.files[SHARD]))

    def test_a_damaged_file_is_found_by_a_later_download(self):
        self.assert_ok(self.download())
        damage(self.to / SHARD, 10)
        os.utime(self.to / SHARD, (time.time() + 100, time.time() + 100))
        result = self.download()
        self.assert_ok(result)
        self.assertIn(SHARD + ": differs", result.stderr)

    def test_folder_that_hf_has_filled(self):
        self.assert_ok(self.download())
        shutil.rmtree(self.to / ".cache" / "waste-download")
        self.assertEqual(self.check().code, OK)
        damage(self.to / SHARD, 10)
        self.assert_fails(self.check(), DATA, "1 of 3")
        self.assert_fails(self.check("--fix"), USAGE, "does not say which repository", self.repo.commit)

    def test_folder_that_nobody_knows(self):
        self.to.mkdir()
        self.assert_fails(self.check(), DATA, "nothing says")
        self.assert_fails(self.run_program("check", self.dir / "none"), DATA, "no such folder")

    def test_damaged_record(self):
        self.assert_ok(self.download())
        record = self.to / ".cache" / "waste-download" / "record.json"
        text = record.read_text()
        for bad in (text[:100], text.replace('"config.json"', '"../config.json"'), text.replace(self.repo.commit, "x"), "[]"):
            record.write_text(bad)
            self.assert_fails(self.check(), DATA, "record.json")


class Offline(Case):
    offline = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}

    def test_verifies_what_is_there_and_touches_no_network(self):
        self.assert_fails(self.download(env=self.offline), DATA, "no such folder")
        self.assert_ok(self.download())
        self.hub.clear_log()
        result = self.download(env=self.offline)
        self.assertEqual(result.code, OK, result.stderr)
        self.assertIn("offline", result.stderr)
        damage(self.to / SHARD, 77)
        self.assert_fails(self.download(env=self.offline), DATA, "1 of 2", "HF_HUB_OFFLINE")
        self.assertEqual(self.download("--include", "*.json", env=self.offline).code, OK)
        self.assert_fails(self.download(repo="other/model", env=self.offline), NETWORK, "org/model")
        self.assert_fails(self.run_program("check", "--fix", self.to, env=self.offline), NETWORK, "HF_HUB_OFFLINE")
        self.assertEqual(self.hub.requests(), [])


class SharedCache(Case):
    files = {**Case.files, "big.safetensors": content(6, 70_000_000)}

    def setUp(self):
        super().setUp()
        self.cache = self.dir / "hf" / "hub" / "models--org--model"
        (self.cache / "blobs").mkdir(parents=True)
        snapshot = self.cache / "snapshots" / self.repo.commit
        snapshot.mkdir(parents=True)
        for path, data in self.files.items():
            etag = self.repo.sha256[path] if self.repo.is_lfs(path) else self.repo.git_sha1[path]
            (self.cache / "blobs" / etag).write_bytes(data)
            (snapshot / path).symlink_to(os.path.relpath(self.cache / "blobs" / etag, snapshot))
        self.before = self.state()

    def state(self):
        return {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in self.cache.rglob("*")}

    def bodies(self):
        return self.hub.bytes_asked("cdn") + self.hub.bytes_asked("resolve-cache")

    def test_imported_without_a_body_request(self):
        self.assert_ok(self.download())
        self.assertEqual(self.bodies(), 0)
        self.assertEqual(self.state(), self.before)
        # Small files are copies: whoever edits them does not edit the cache.
        self.assertEqual((self.to / "config.json").stat().st_nlink, 1)

    def test_plain_files_in_the_snapshot(self):
        for path in self.files:
            link = self.cache / "snapshots" / self.repo.commit / path
            blob = link.resolve()
            link.unlink()
            blob.rename(link)
        self.assert_ok(self.download("--from-cache"))
        self.assertEqual(self.bodies(), 0)

    def test_damaged_blob_is_fetched_and_left_alone(self):
        blob = self.cache / "blobs" / self.repo.sha256[SHARD]
        damage(blob, 1000)
        damaged = blob.read_bytes()
        result = self.download()
        self.assert_ok(result)
        self.assertIn("in the shared cache", result.stderr)
        self.assertEqual(self.bodies(), len(self.files[SHARD]))
        self.assertTrue(blob.read_bytes() == damaged)

    def test_repair_does_not_write_through_a_link(self):
        self.assert_ok(self.download())
        damage(self.to / "big.safetensors", 5)
        blob = self.cache / "blobs" / self.repo.sha256["big.safetensors"]
        after = blob.read_bytes()
        self.assertEqual(self.run_program("check", "--fix", self.to).code, OK)
        self.assert_complete()
        self.assertTrue(blob.read_bytes() == after)

    def test_no_cache(self):
        self.assert_ok(self.download("--no-cache"))
        self.assertEqual(self.bodies(), self.size())

    def test_other_place(self):
        shutil.move(self.dir / "hf" / "hub", self.dir / "elsewhere")
        self.assert_ok(self.download(env={"HF_HUB_CACHE": str(self.dir / "elsewhere")}))
        self.assertEqual(self.bodies(), 0)


class Choice(Case):
    files = {
        "config.json": b"{}", "sub/tokenizer.json": b"[]",
        "model-00001.safetensors": content(1, 2_000_000), "model-00002.safetensors": content(2, 2_000_000),
        "model-00003.safetensors": content(3, 2_000_000),
        "model.safetensors.index.json": json.dumps({"metadata": {"total_size": 6_000_000}, "weight_map": {
            "model.embed_tokens.weight": "model-00001.safetensors", "model.layers.0.a": "model-00001.safetensors",
            "model.layers.1.a": "model-00002.safetensors", "model.layers.2.a": "model-00003.safetensors"}}).encode()}

    def present(self):
        return sorted(str(p.relative_to(self.to)) for p in self.to.rglob("*") if p.is_file() and ".cache" not in p.parts)

    def test_include_exclude(self):
        self.assertEqual(self.download("--include", "*.json", "--exclude", "sub/*").code, OK)
        self.assertEqual(self.present(), ["config.json", "model.safetensors.index.json"])
        self.assertEqual(self.download("--include", "*00002*", "--include", "sub*").code, OK)
        self.assertEqual(self.present(), ["config.json", "model-00002.safetensors", "model.safetensors.index.json",
                                          "sub/tokenizer.json"])
        # Both runs are on record.
        checked = self.run_program("check", self.to)
        self.assertIn("4 files", checked.stderr)

    def test_pattern_without_match(self):
        self.assert_fails(self.download("--include", "*.gguf"), USAGE, "*.gguf")
        self.assert_fails(self.download("--exclude", "*"), USAGE, "no file")

    def test_layers(self):
        self.assertEqual(self.download("--layers", "2").code, OK)
        self.assertEqual(self.present(), sorted(set(self.files) - {"model-00002.safetensors"}))
        self.assert_fails(self.download("--layers", "0-3"), USAGE, "no layer 3", "layers 0 to 2")

    def test_dry_run_writes_nothing(self):
        result = self.download("--dry-run", "--json", "--layers", "0")
        self.assertEqual(result.code, OK, result.stderr)
        plan, = result.events("plan")
        index = len(self.files["model.safetensors.index.json"])
        self.assertEqual(plan["bytes"], 2_000_000 + 4 + index)
        self.assertEqual(plan["files"], 4)
        self.assertGreaterEqual(plan["needed_disk"], plan["bytes"])
        self.assertFalse(self.to.exists())
        self.assertEqual(self.hub.requests("cdn"), [])

    def test_wrong_commands(self):
        for arguments in (["org/model"], ["--to", self.to], ["../x", "--to", self.to], ["a/b/c", "--to", self.to],
                          ["org/model", "more", "--to", self.to], ["org/model", "--to", self.to, "--files", "0"],
                          ["org/model", "--to", self.to, "--files", "32", "--connections", "32"],
                          ["org/model", "--to", self.to, "--limit-rate", "fast"],
                          ["org/model", "--to", self.to, "--layers", "x"],
                          ["org/model", "--to", self.to, "--from-cache", "--no-cache"],
                          ["org/model", "--to", self.to, "--endpoint", "hub"], ["check"]):
            with self.subTest(arguments=arguments):
                self.assert_fails(self.run_program(*arguments), USAGE)
        self.assertEqual(self.hub.requests(), [])


if __name__ == "__main__":
    harness.main()
