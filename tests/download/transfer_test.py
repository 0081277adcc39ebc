#!/usr/bin/env python3
"""What goes wrong on the wire: drops, busy servers, ignored and wrong ranges, stalls, lies about lengths, expired
URLs, redirects. Every case asserts the final bytes, the exit code, what is said, and how many bytes were asked for."""

import re
import time

import harness
from harness import Case, HubServer, MACHINE, NETWORK, DATA, SHARD, block_size, content


class Drops(Case):
    def test_undisturbed(self):
        self.assert_ok(self.download())
        self.assertEqual(self.hub.bytes_asked(), self.size())
        self.assertEqual(len(self.hub.requests("resolve", SHARD)), 1, "one resolve a shard")

    def test_dropped_after_k_bytes_goes_on_at_k(self):
        for by_reset in (False, True):
            with self.subTest(by_reset=by_reset):
                self.hub.clear_log()
                self.to = self.dir / ("reset" if by_reset else "close")
                self.hub.fault("cdn", drop_after=100_001, drop_by_reset=by_reset, times=6)
                self.assert_ok(self.download("--connections", 2))
                requests = self.hub.requests("cdn")
                begins = sorted(int(r["range"][6:].split("-")[0]) for r in requests)
                self.assertEqual(len(begins), len(set(begins)), "no byte is asked for as the first one twice")
                # What a drop costs is the rest of its range, asked for again; sent bytes are not sent twice, beyond
                # what a reset took out of the socket's buffers: less than a block a drop.
                sent = sum(r["sent"] for r in requests)
                block = block_size(len(self.files[SHARD]))
                self.assertLessEqual(sent, len(self.files[SHARD]) + (6 * block if by_reset else 0))

    def test_dropped_many_times_with_progress_is_not_given_up(self):
        self.hub.fault("cdn", drop_after=300_000, times=15)
        self.assert_ok(self.download("--retries", 2, "--connections", 1))

    def test_drops_without_progress_are_given_up(self):
        self.hub.fault("cdn", reset=True, times=1000)
        result = self.download("--retries", 2)
        self.assert_fails(result, NETWORK, SHARD, "gave up after 3 failures", "run again")
        self.assert_absent()
        self.hub.faults.clear()
        self.assert_ok(self.download())


class Busy(Case):
    def test_first_connections_are_refused(self):
        port = int(self.hub.endpoint.rsplit(":", 1)[1])
        self.hub.close()
        started = self.start("org/model", "--to", self.to)
        time.sleep(0.7)
        self.hub = HubServer(hub_port=port)
        self.addCleanup(self.hub.close)
        self.repo = self.hub.add_repo("org/model", self.files)
        _, err = started.communicate(timeout=60)
        self.assertEqual(started.returncode, 0, err)
        self.assert_complete()

    def test_nobody_there_at_all(self):
        for endpoint in ("http://127.0.0.1:9", "http://hub.invalid", "https://hub.invalid", "https://127.0.0.1:9"):
            with self.subTest(endpoint=endpoint):
                result = self.download("--retries", 2, env={"HF_ENDPOINT": endpoint})
                self.assert_fails(result, NETWORK, "gave up", endpoint)

    def test_every_call_survives_a_reset(self):
        for where in ("api", "tree", "resolve", "resolve-cache", "cdn"):
            self.hub.fault(where, reset=True, times=2)
        self.assert_ok(self.download())
        self.assertEqual(self.hub.bytes_asked(), self.size())

    def test_every_call_survives_every_passing_status(self):
        statuses = (408, 429, 500, 502, 503, 504)
        for shift in range(len(statuses)):
            self.hub.clear_log()
            self.to = self.dir / str(shift)
            for i, where in enumerate(("api", "tree", "resolve", "resolve-cache", "cdn")):
                self.hub.fault(where, status=statuses[(shift + i) % len(statuses)])
            self.assert_ok(self.download("--connections", 2))
            self.assertEqual(self.hub.bytes_asked(), self.size())

    def test_retry_after_is_obeyed(self):
        for where in ("api", "resolve", "cdn"):
            with self.subTest(where=where):
                self.hub.clear_log()
                self.to = self.dir / where
                self.hub.fault(where, status=429, headers={"Retry-After": "2"}, path=None if where == "api" else SHARD)
                self.assert_ok(self.download())
                times = [r["time"] for r in self.hub.requests(where, None if where == "api" else SHARD)]
                self.assertGreaterEqual(times[1] - times[0], 2)

    def test_an_empty_window_holds_everyone(self):
        self.hub.fault("resolve", SHARD, extra_headers={"RateLimit": '"resolvers";r=0;t=2'})
        self.files = {**self.files, "a.safetensors": content(7, 400_000), "z.safetensors": content(8, 400_000)}
        self.repo = self.hub.add_repo("org/model", self.files)
        self.assert_ok(self.download("--files", 1))
        hub = [r for r in self.hub.requests() if r["where"] != "cdn"]
        limited = next(i for i, r in enumerate(hub) if r["where"] == "resolve" and SHARD in r["path"])
        self.assertGreater(len(hub), limited + 1)
        for later in hub[limited + 1:]:
            self.assertGreaterEqual(later["time"] - hub[limited]["time"], 2)

    def test_a_busy_server_for_ever(self):
        self.hub.fault("cdn", status=503, body=b"", times=1000)
        self.assert_fails(self.download("--retries", 1), NETWORK, "gave up after 2 failures", "503")


class Ranges(Case):
    def test_whole_body_for_a_range_once(self):
        self.hub.fault("cdn", ignore_range=True, after=1)
        self.assert_ok(self.download())

    def test_server_that_ignores_ranges(self):
        self.hub.fault("cdn", ignore_range=True, times=1000)
        result = self.download()
        self.assert_ok(result)
        self.assertIn("ignores ranges", result.stderr)

    def test_server_that_ignores_ranges_and_drops(self):
        self.hub.fault("cdn", ignore_range=True, drop_after=4_000_000, after=4, times=1)
        self.hub.fault("cdn", ignore_range=True, times=1000)
        self.assert_ok(self.download())

    def test_resumes_where_ranges_are_ignored_since(self):
        self.hub.fault("cdn", drop_after=300_000, times=1)
        self.hub.fault("cdn", reset=True, times=1000)
        self.assert_fails(self.download("--retries", 0, "--connections", 1), NETWORK)
        self.hub.faults.clear()
        self.hub.fault("cdn", ignore_range=True, times=1000)
        self.assert_ok(self.download())

    def test_whole_body_where_the_whole_is_asked_for(self):
        self.files = {"tokenizer.model": content(3, 200_000)}
        self.repo = self.hub.add_repo("org/model", self.files)
        self.hub.fault("resolve-cache", ignore_range=True)
        self.assert_ok(self.download())
        self.assertEqual(self.hub.bytes_asked(), 200_000)

    def test_answers_to_other_questions(self):
        for lie in ({"shift": 1000}, {"wrong_total": 1}, {"no_content_range": True}, {"short_length": 10},
                    {"wrong_range_claim": "bytes 5-9/10"}, {"wrong_range_claim": "nonsense"}, {"html": True},
                    {"status": 204}, {"status": 416}, {"extra_headers": {"Content-Encoding": "gzip"}},
                    {"long_body": 1000}):
            with self.subTest(**lie):
                self.hub.clear_log()
                self.to = self.dir / "".join(c for c in str(lie) if c.isalnum())
                fault = self.hub.fault("cdn", times=2, **lie)
                result = self.download("--connections", 2)
                self.assert_ok(result)
                self.assertEqual(fault.used, 2)
                # Not a byte of a wrong answer is kept, so none has to be found out by the digest.
                self.assertNotIn("refetching", result.stderr)

    def test_html_for_ever(self):
        self.hub.fault("cdn", html=True, times=1000)
        self.assert_fails(self.download("--retries", 1), NETWORK, SHARD, "HTML page")
        self.assert_absent()

    def test_html_instead_of_the_listing(self):
        self.hub.fault("tree", html=True, times=1000)
        self.assert_fails(self.download("--retries", 1), NETWORK, "HTML page")

    def test_416_for_ever(self):
        self.hub.fault("cdn", status=416, times=1000)
        self.assert_fails(self.download("--retries", 1), NETWORK, SHARD, "416")

    def test_partial_as_long_as_the_whole(self):
        for name, data in (("same", b"\0" * 6_000_000), ("longer", b"\1" * 6_500_000), ("shorter", b"\2" * 10)):
            with self.subTest(name=name):
                self.to = self.dir / name
                self.to.mkdir()
                (self.to / (SHARD + ".partial")).write_bytes(data)
                self.hub.clear_log()
                self.assert_ok(self.download())
                self.assertEqual(self.hub.bytes_asked("cdn"), 6_000_000)


class Stalls(Case):
    def test_stalled_body_is_cut_and_resumed(self):
        self.hub.fault("cdn", stall_after=50_000)
        begin = time.monotonic()
        self.assert_ok(self.download("--stall-timeout", 1, "--connections", 2))
        self.assertGreaterEqual(time.monotonic() - begin, 1)
        self.assertEqual(sum(r["sent"] for r in self.hub.requests("cdn")), len(self.files[SHARD]))

    def test_silence_before_the_head_is_cut(self):
        self.hub.fault("api", delay=4)
        self.assert_ok(self.download("--stall-timeout", 1))

    def test_slow_drip_above_the_floor_is_left_alone(self):
        self.files = {"slow.safetensors": content(4, 30_000)}
        self.repo = self.hub.add_repo("org/model", self.files)
        self.hub.fault("cdn", drip=10_000, times=1)
        self.assert_ok(self.download("--stall-timeout", 2))
        self.assertEqual(len(self.hub.requests("cdn")), 1)

    def test_rate_limit(self):
        begin = time.monotonic()
        self.assert_ok(self.download("--limit-rate", "3M", "--stall-timeout", 1))
        self.assertGreaterEqual(time.monotonic() - begin, 6.0 / 3 * 0.9)


class Urls(Case):
    def test_expired_url_goes_on_at_the_same_offset(self):
        self.hub.fault("cdn", drop_after=200_000)
        self.hub.fault("cdn", expire=True)
        self.assert_ok(self.download("--connections", 1))
        self.assertEqual(len(self.hub.requests("resolve", SHARD)), 2)
        sent = self.hub.bytes_sent("cdn")
        self.assertEqual(sent, len(self.files[SHARD]))

    def test_expired_under_many_connections(self):
        self.hub.fault("cdn", drop_after=100_000, times=4)
        self.hub.fault("cdn", expire=True, after=1)
        self.assert_ok(self.download())
        self.assertEqual(self.hub.bytes_sent("cdn"), len(self.files[SHARD]))

    def test_fresh_url_refused_too(self):
        self.hub.fault("cdn", status=403, times=1000)
        self.assert_fails(self.download("--connections", 1), NETWORK, SHARD, "refuses a URL that the Hub has just signed")
        self.assertEqual(len(self.hub.requests("cdn")), 2)

    def test_redirects_are_bounded(self):
        self.hub.fault("resolve", SHARD, times=1000, status=302,
                       headers={"Location": "/org/model/resolve/main/" + SHARD})
        self.assert_fails(self.download(), NETWORK, "redirects")
        self.assertLessEqual(len(self.hub.requests("resolve", SHARD)), 10)

    def test_redirects_to_no_web_server(self):
        for location in ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://user:pass@127.0.0.1:9/x", "http://", "\x01"):
            with self.subTest(location=location):
                self.hub.faults.clear()
                self.hub.fault("resolve", SHARD, times=1000, status=302, headers={"Location": location})
                result = self.download()
                self.assert_fails(result, NETWORK, "redirects to something")
                self.assertNotIn("pass@", result.stderr)

    def test_hub_and_listing_disagree(self):
        for headers, text in (({"X-Linked-ETag": '"%s"' % ("0" * 64)}, "SHA-256"), ({"X-Linked-Size": "7"}, "size"),
                              ({"X-Repo-Commit": "1" * 40}, "commit")):
            with self.subTest(text=text):
                self.hub.faults.clear()
                self.hub.fault("resolve", SHARD, times=1000, extra_headers=headers)
                self.assert_fails(self.download(), DATA, SHARD, text)
                self.assert_absent()

    def test_renamed_repository(self):
        old = self.hub.add_repo("old/name", self.files)
        old.moved_to = "org/model"
        result = self.download(repo="old/name")
        self.assert_ok(result)
        self.assertIn("old/name is now org/model", result.stderr)


class Memory(Case):
    files = {"model-%d.safetensors" % i: content(i, 20_000_000) for i in range(4)}

    def test_stays_below_100_mib_whatever_the_settings(self):
        process = self.start("org/model", "--to", self.to, "--files", "4", "--connections", "32", "--quiet")
        peak = 0
        while process.poll() is None:
            # Not the resource usage of a child: that includes what the parent had when it forked.
            try:
                with open("/proc/%d/status" % process.pid) as status:
                    found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
                peak = max(peak, int(found[1]) << 10 if found else 0)
            except OSError:
                pass
            time.sleep(0.005)
        process.communicate()
        self.assertEqual(process.returncode, 0)
        self.assert_complete()
        self.assertGreater(peak, 1 << 20)
        self.assertLess(peak, 100 << 20)


class Listings(Case):
    def test_second_page_fails_once(self):
        self.files = {("f%d.txt" % i): b"%d" % i for i in range(7)}
        self.repo = self.hub.add_repo("org/model", self.files)
        self.hub.page = 4
        self.hub.fault("tree", status=500, after=1)
        self.assert_ok(self.download())
        self.assertEqual(len(self.hub.requests("tree")), 3)

    def test_next_page_elsewhere(self):
        self.hub.fault("tree", extra_headers={"Link": '<http://127.0.0.1:9/x>; rel="next"'})
        self.assert_fails(self.download(), NETWORK, "elsewhere")

    def test_odd_names(self):
        self.files = {"a b.json": b"1", "h#sh.json": b"2", "p%20c.json": b"3", "\u00fcml\u00e4ut/\u6a21\u578b.json": b"4",
                      "q?s&x=y.safetensors": content(2, 1000), "+plus;.json": b"5"}
        self.repo = self.hub.add_repo("org/model", self.files)
        self.assert_ok(self.download())

    def test_hostile_names(self):
        for name in ("../x", "/x", "C:\\x", "a/../../x", "a//b", ".cache/huggingface/download/config.json.metadata",
                     "a\nb", "config.json", "config.json/x", ".waste-download.lock"):
            with self.subTest(name=name):
                self.repo.extra_entries = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40}]
                result = self.download()
                self.assert_fails(result, DATA)
                self.assertFalse((self.dir / "x").exists())
                self.assertEqual(self.hub.requests("resolve"), [])

    def test_impossible_sizes(self):
        for size, code in ((-1, DATA), (2 ** 63, DATA), (2 ** 43, MACHINE)):
            with self.subTest(size=size):
                self.repo.extra_entries = [{"type": "file", "path": "x", "size": size, "oid": "0" * 40}]
                self.assert_fails(self.download(), code)
                self.assertEqual(self.hub.requests("resolve"), [])


if __name__ == "__main__":
    harness.main()
