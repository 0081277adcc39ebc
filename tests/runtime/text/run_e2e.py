#!/usr/bin/python3
"""waste-run generate and eval from the command line: options, refusals, streaming, sessions and Ctrl-C."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import numpy as np

from common import DATA, K3, LINEAR, RUN, refusal, run, run_json

PROMPT = "And God said"
VOCABULARY = 2304


class Directory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.dir = directory.name

    def path(self, name):
        return os.path.join(self.dir, name)


class Refusals(Directory):
    def test_ids(self):
        self.assertIn('"abc" is not', refusal("generate", K3, "--ids", "abc"))
        self.assertIn("from 0 to 2303", refusal("generate", K3, "--ids", "5,2304"))
        self.assertIn('"" is not', refusal("eval", K3, "--ids", "1,,2"))

    def test_counts_and_numbers(self):
        self.assertIn("--max-tokens", refusal("generate", K3, "x", "-n", "0"))
        self.assertIn("--max-tokens", refusal("generate", K3, "x", "-n", "ten"))
        self.assertIn("--temperature", refusal("generate", K3, "x", "--temperature", "hot"))
        self.assertIn("--temperature", refusal("generate", K3, "x", "--temperature=-1"))
        self.assertIn("--top-p", refusal("generate", K3, "x", "--top-p", "0"))
        self.assertIn("--min-p", refusal("generate", K3, "x", "--min-p", "1.5"))
        self.assertIn("--top-k", refusal("generate", K3, "x", "--top-k=-3"))
        self.assertIn("--seed", refusal("generate", K3, "x", "--seed", "1e3"))
        self.assertIn("--kv", refusal("generate", K3, "x", "--kv", "f8"))
        self.assertIn("--threads", refusal("generate", K3, "x", "--threads", "0"))
        self.assertIn("--budget", refusal("generate", K3, "x", "--budget", "lots"))
        self.assertIn("--top", refusal("eval", K3, "x", "--top", "0"))

    def test_a_prompt_longer_than_the_context_is_not_cut(self):
        self.assertIn("the context holds 8", refusal("generate", K3, "word " * 20, "--ctx", "8"))
        self.assertIn("the context holds 8", refusal("eval", K3, "word " * 20, "--ctx", "8"))

    def test_prompts(self):
        self.assertIn("PROMPT is missing", refusal("generate", K3))
        self.assertIn("the prompt is empty", refusal("generate", K3, ""))
        self.assertIn("the prompt is empty", refusal("generate", K3, "-"))
        self.assertIn("exclude each other", refusal("generate", K3, "x", "--ids", "1"))
        self.assertIn("unexpected argument", refusal("generate", K3, "x", "y"))
        self.assertIn("--stop", refusal("generate", K3, "x", "--stop", ""))
        self.assertIn("--frobnicate", refusal("generate", K3, "x", "--frobnicate"))
        self.assertIn("MODEL is missing", refusal("generate"))
        self.assertIn("/nonexistent", refusal("generate", K3, "--file", "/nonexistent", code=1))

    def test_a_folder_that_is_not_there_is_known_before_the_work(self):
        self.assertIn("cannot save", refusal("generate", K3, "x", "--save-state", "/nonexistent/s", code=3))
        self.assertIn("cannot save", refusal("chat", K3, "--save-state", "/nonexistent/s", code=3))

    def test_a_budget_below_the_floor(self):
        self.assertIn("budget", refusal("generate", K3, "x", "--budget", "1M", code=3))

    def test_a_container_without_a_manifest(self):
        self.assertIn("manifest.json", refusal("generate", self.dir, "x", code=1))


class Generate(Directory):
    def test_the_style_of_the_training_text(self):
        text = run("generate", K3, PROMPT, "-n", "60", "--temperature", "0.7", check=0).stdout.decode()
        self.assertGreater(len(text), 100)
        common = sum(text.count(word) for word in (" the", " of", " and", " LORD", " shall", " unto", " he", " thou"))
        self.assertGreater(common, 4, text)

    def test_options_before_and_after_positionals_mean_the_same(self):
        want = run_json("generate", K3, PROMPT, "-n", "5", "--temperature", "0")
        for args in (("--temperature", "0", K3, PROMPT, "-n", "5"), ("-n5", K3, "--temperature=0", PROMPT)):
            got = run_json("generate", *args)
            self.assertEqual((got["ids"], got["logits_hash"]), (want["ids"], want["logits_hash"]))

    def test_prompts_from_everywhere(self):
        with open(self.path("p"), "w", encoding="utf-8") as f:
            f.write(PROMPT)
        options = ("-n", "4", "--temperature", "0")
        ids = ",".join(map(str, run_json("tokenize", K3, PROMPT)["ids"]))
        want = run_json("generate", K3, PROMPT, *options)["logits_hash"]
        self.assertEqual(run_json("generate", K3, "--file", self.path("p"), *options)["logits_hash"], want)
        self.assertEqual(run_json("generate", K3, "-", *options, stdin=PROMPT.encode())["logits_hash"], want)
        self.assertEqual(run_json("generate", K3, "--ids", ids, *options)["logits_hash"], want)

    def test_control_markers_are_text_unless_raw(self):
        marker = "<|end_of_msg|>"
        plain = run_json("generate", K3, marker, "-n", "1")
        self.assertEqual(plain["prompt_tokens"], len(run_json("tokenize", K3, marker)["ids"]))
        self.assertGreater(plain["prompt_tokens"], 1)
        self.assertEqual(run_json("generate", K3, marker, "-n", "1", "--raw")["prompt_tokens"], 1)

    def test_text_json_and_figures_agree(self):
        options = ("generate", K3, PROMPT, "-n", "20", "--seed", "3")
        plain = run(*options, check=0)
        report = run_json(*options)
        self.assertEqual(plain.stdout.decode(), report["text"] + "\n")
        self.assertEqual(run("detokenize", K3, ",".join(map(str, report["ids"])), check=0).stdout.decode(), report["text"])
        self.assertRegex(plain.stderr.decode(), r"tokens of prompt at [\d.]+ tok/s, 20 new at [\d.]+ tok/s \(length\); "
                         r"[\d.]+ \w+ read, [\d.]+% of experts found in memory, logits " + report["logits_hash"])
        self.assertEqual(run(*options, "--quiet", check=0).stderr, b"")
        self.assertEqual(report["new_tokens"], 20)
        self.assertEqual(report["finish"], "length")

    def test_seeds(self):
        texts = [run_json("generate", K3, PROMPT, "-n", "20", "--seed", s)["text"] for s in ("1", "1", "2")]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_the_text_does_not_depend_on_threads_or_checks(self):
        want = run_json("generate", K3, PROMPT, "-n", "12")["logits_hash"]
        for options in (("--threads", "1"), ("--threads", "3"), ("--verify",), ("--ctx", "64")):
            self.assertEqual(run_json("generate", K3, PROMPT, "-n", "12", *options)["logits_hash"], want)

    def test_a_full_context_ends_the_text(self):
        prompt = len(run_json("tokenize", K3, PROMPT)["ids"])
        report = run_json("generate", K3, PROMPT, "-n", "50", "--ctx", prompt + 7)
        self.assertEqual(report["finish"], "context")
        self.assertEqual(report["new_tokens"], 8)

    def test_stop_strings_across_tokens(self):
        base = run_json("generate", K3, PROMPT, "-n", "40", "--temperature", "0")
        for at in range(3, 30, 9):
            pieces = [run("detokenize", K3, i, check=0).stdout.decode() for i in base["ids"][at:at + 2]]
            stop = pieces[0][-1] + pieces[1][:2]
            where = base["text"].index(stop)
            args = ("generate", K3, PROMPT, "-n", "40", "--temperature", "0", "--stop", "\x01never", "--stop", stop)
            report = run_json(*args)
            self.assertEqual((report["text"], report["finish"], report["stop"]), (base["text"][:where], "stop", stop))
            self.assertEqual(run(*args, "--quiet", check=0).stdout.decode(), base["text"][:where] + "\n")

    def test_the_models_own_end(self):
        # An ordinary token as the end: what a trained [EOS] does, done by a token this model is sure to choose.
        base = run_json("generate", K3, PROMPT, "-n", "40", "--temperature", "0")
        at = 17
        end = base["ids"][at]
        at = base["ids"].index(end)
        model = self.path("model.waste")
        shutil.copytree(K3, model)
        manifest = os.path.join(model, "manifest.json")
        with open(manifest, encoding="utf-8") as f:
            document = json.load(f)
        for value in (end, [2049, end]):
            document["config"]["eos_token_id"] = value
            with open(manifest, "w", encoding="utf-8") as f:
                json.dump(document, f)
            report = run_json("generate", model, PROMPT, "-n", "40", "--temperature", "0")
            self.assertEqual((report["ids"], report["finish"]), (base["ids"][:at], "end"))
        document["config"]["eos_token_id"] = 2304
        with open(manifest, "w", encoding="utf-8") as f:
            json.dump(document, f)
        self.assertIn("eos_token_id", refusal("generate", model, PROMPT, code=1))

    def test_a_full_disk_behind_the_output(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([RUN, "generate", K3, PROMPT, "-n", "2"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 3)
        self.assertIn(b"standard output", result.stderr)

    def test_learning_changes_no_bit(self):
        model = self.path("model.waste")
        shutil.copytree(K3, model)
        want = run_json("generate", K3, PROMPT, "-n", "12")["logits_hash"]
        for _ in range(2):
            self.assertEqual(run_json("generate", model, PROMPT, "-n", "12", "--learn")["logits_hash"], want)
            self.assertTrue(os.path.exists(os.path.join(model, "usage.waste")))


class Sessions(Directory):
    def test_a_session_continued_is_the_session_never_interrupted(self):
        state = self.path("s.state")
        for model, options in ((K3, ()), (LINEAR, ("--kv", "f32"))):
            whole = run_json("generate", model, PROMPT, "-n", "30", *options)["ids"]
            parts = run_json("generate", model, PROMPT, "-n", "11", "--save-state", state, *options)["ids"]
            parts += run_json("generate", model, "--load-state", state, "-n", "12", "--save-state", state, *options)["ids"]
            parts += run_json("generate", model, "--load-state", state, "-n", "7", "--threads", "1", *options)["ids"]
            self.assertEqual(parts, whole)

    def test_a_prompt_goes_on_where_the_session_ended(self):
        state = self.path("s.state")
        first = run_json("generate", K3, PROMPT, "-n", "5", "--save-state", state)
        ids = run_json("tokenize", K3, PROMPT)["ids"] + first["ids"] + run_json("tokenize", K3, " unto")["ids"]
        want = run_json("generate", K3, "--ids", ",".join(map(str, ids)), "-n", "6")
        got = run_json("generate", K3, " unto", "--load-state", state, "-n", "6")
        self.assertEqual((got["ids"], got["logits_hash"]), (want["ids"], want["logits_hash"]))

    def test_damage_and_strangers_are_refused(self):
        state = self.path("s.state")
        run("generate", K3, PROMPT, "-n", "5", "--save-state", state, check=0)
        with open(state, "rb") as f:
            good = f.read()
        step = max(1, len(good) // 12)
        for at in [0, 4, 8, 12, *range(16, len(good), step), len(good) - 1]:
            with open(state, "wb") as f:
                f.write(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1:])
            self.assertIn("s.state", refusal("generate", K3, "--load-state", state, code=1))
        for size in [0, 1, 15, len(good) // 2, len(good) - 1]:
            with open(state, "wb") as f:
                f.write(good[:size])
            self.assertIn("s.state", refusal("generate", K3, "--load-state", state, code=1))
        with open(state, "wb") as f:
            f.write(good)
        self.assertIn("s.state", refusal("generate", LINEAR, "--load-state", state, code=1))
        self.assertIn("s.state", refusal("generate", K3, "--load-state", state, "--ctx", "3", code=1))
        self.assertIn('"generate"', refusal("chat", K3, "--load-state", state, code=1))
        run("generate", K3, "--load-state", state, "-n", "1", check=0)

    def test_a_failed_save_leaves_the_old_file(self):
        state = self.path("s.state")
        run("generate", K3, PROMPT, "-n", "5", "--save-state", state, check=0)
        with open(state, "rb") as f:
            before = f.read()
        os.mkdir(state + ".partial")  # nothing can be written there
        result = run("generate", K3, PROMPT, "-n", "6", "--save-state", state, check=3)
        self.assertIn("s.state", result.stderr.decode())
        self.assertGreater(len(result.stdout), 5)  # the text was shown all the same
        with open(state, "rb") as f:
            self.assertEqual(f.read(), before)


class Interrupt(Directory):
    def interrupt(self, *args):
        """Runs until some text has come, interrupts, and returns the text and the number of tokens."""
        process = subprocess.Popen([RUN, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 5, message)
        count = re.search(r"interrupted after (\d+) new tokens", message.decode())
        self.assertTrue(count, message)
        self.assertIn(f"{count[1]} new at", message.decode())  # the figures are not lost
        return (text + rest)[:-1], int(count[1])

    def test_the_current_token_is_the_last_and_the_session_goes_on(self):
        state = self.path("s.state")
        options = ("--ctx", "60000", "--seed", "5")
        text, count = self.interrupt("generate", K3, PROMPT, "-n", "50000", "--save-state", state, *options)
        self.assertLess(count, 50000)
        text += run("generate", K3, "--load-state", state, "-n", "10", *options, check=0).stdout[:-1]
        whole = run("generate", K3, PROMPT, "-n", count + 10, *options, check=0).stdout[:-1]
        self.assertEqual(text, whole)

    def test_without_a_name_nothing_is_saved(self):
        self.interrupt("generate", K3, PROMPT, "-n", "50000", "--ctx", "60000")
        self.assertEqual(os.listdir(self.dir), [])

    def test_in_the_middle_of_the_prompt(self):
        state = self.path("s.state")
        ids = [(i * 7919) % 2000 for i in range(700)]
        prompt = ",".join(map(str, ids))
        options = ("--ctx", "800", "--temperature", "0")
        process = subprocess.Popen([RUN, "generate", K3, "--ids", prompt, "-n", "4", "--save-state", state, *options],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # The handler must be installed before the signal is sent: then the process catches SIGINT.
        while True:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as f:
                if int(re.search(r"SigCgt:\s+(\w+)", f.read())[1], 16) & 1 << signal.SIGINT - 1:
                    break
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 5, message)
        resumed = run_json("generate", K3, "--load-state", state, "-n", "4", *options)
        whole = run_json("generate", K3, "--ids", prompt, "-n", "4", *options)
        self.assertEqual((resumed["ids"], resumed["logits_hash"]), (whole["ids"], whole["logits_hash"]))


def log_softmax(logits):
    logits = logits.astype(np.float64)
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))


class Eval(Directory):
    def logits(self, ids, *options):
        path = self.path("logits.f32")
        report = run_json("eval", K3, "--ids", ",".join(map(str, ids)), "--dump-logits", path, *options)
        values = np.fromfile(path, "<f4").reshape(-1, VOCABULARY)
        self.assertEqual(len(values), len(ids))
        self.assertFalse(os.path.exists(path + ".partial"))
        return values, report

    def test_the_reference_logits(self):
        with open(os.path.join(DATA, "golden/logits/tiny-k3.container.json"), encoding="utf-8") as f:
            prompts = json.load(f)
        want = np.fromfile(os.path.join(DATA, "golden/logits/tiny-k3.container.f32"), "<f4").reshape(-1, VOCABULARY)
        begin = 0
        for prompt in prompts[:3]:
            reference = want[begin:begin + len(prompt["ids"])]
            begin += len(prompt["ids"])
            got, report = self.logits(prompt["ids"], "--kv", "f32")
            self.assertLess(np.linalg.norm(got - reference) / np.linalg.norm(reference), 5e-4)
            self.assertEqual([t["id"] for t in report["top"]][:3], [t[0] for t in prompt["top"]][:3])
            expected = log_softmax(got[-1])
            for entry in report["top"]:
                self.assertAlmostEqual(entry["logprob"], expected[entry["id"]], 4)
                self.assertAlmostEqual(entry["logit"], float(got[-1][entry["id"]]), 5)

    def test_the_table(self):
        table = run("eval", K3, PROMPT, "--top", "4", check=0).stdout.decode().splitlines()
        report = run_json("eval", K3, PROMPT, "--top", "4")
        self.assertEqual(len(table), 6)
        self.assertEqual([int(line.split()[0]) for line in table[1:5]], [t["id"] for t in report["top"]])
        self.assertIn(report["logits_hash"], table[5])

    def test_perplexity_against_the_logits(self):
        with open(os.path.join(DATA, "golden/heldout.txt"), encoding="utf-8") as f:
            text = f.read()[:700]
        with open(self.path("text"), "w", encoding="utf-8") as f:
            f.write(text)
        ids = run_json("tokenize", K3, "-", stdin=text.encode())["ids"]
        for window in (len(ids) + 5, len(ids), 150, 64):
            nats, scored, windows = 0.0, 1, 0
            for begin in range(0, len(ids), window // 2):
                if scored == len(ids):
                    break
                part = ids[begin:begin + window]
                logs = log_softmax(self.logits(part)[0])
                for i in range(1, len(part)):
                    if begin + i >= scored:
                        nats -= logs[i - 1][part[i]]
                        scored = begin + i + 1
                windows += 1
            report = run_json("eval", K3, "--perplexity", self.path("text"), "--ctx", window)
            self.assertEqual((report["tokens"], report["windows"]), (len(ids) - 1, windows))
            self.assertAlmostEqual(report["perplexity"] / math.exp(nats / (len(ids) - 1)), 1, 5)
        first = len(run("detokenize", K3, ids[0], check=0).stdout)
        self.assertAlmostEqual(report["bits_per_byte"], nats / math.log(2) / (len(text.encode()) - first), 4)

    def test_refusals(self):
        with open(self.path("text"), "w", encoding="utf-8") as f:
            f.write("a")
        self.assertIn("nothing to predict", refusal("eval", K3, "--perplexity", self.path("text")))
        self.assertIn("neither a prompt", refusal("eval", K3, "x", "--perplexity", self.path("text")))
        self.assertIn("PROMPT is missing", refusal("eval", K3))
        os.mkdir(self.path("l.partial"))
        refusal("eval", K3, "x", "--dump-logits", self.path("l"), code=3)


class Bench(unittest.TestCase):
    def test_figures(self):
        report = run_json("bench", K3, "--prompt-tokens", "9", "-n", "3")
        self.assertEqual(list(report["stretches"]), ["prefill cold", "decode cold", "prefill warm", "decode warm"])
        self.assertGreater(report["disk_bytes_per_second"], 0)
        for name, stretch in report["stretches"].items():
            self.assertEqual(stretch["tokens"], 9 if "prefill" in name else 3)
            self.assertGreater(stretch["weight_bytes"], 0)
        self.assertGreater(report["stretches"]["decode cold"]["bytes_read"],
                           report["stretches"]["decode warm"]["bytes_read"])
        self.assertIn("decode warm", run("bench", K3, "--prompt-tokens", "2", "-n", "1", check=0).stdout.decode())


if __name__ == "__main__":
    unittest.main()
