#!/usr/bin/python3
"""Converts the bundled checkpoints and holds the containers against an independent decoder and the golden ones."""

import json
import os
import unittest

from support import CHEAP, DATA, Case, digests, run

from waste_reader import CheckpointReader, WasteReader, mean_errors

GOLDEN = DATA / "golden"


def read_json(path):
    return json.loads(path.read_text())


class Convert(Case):
    def convert_and_measure(self, name, golden, *options, experts=1):
        out = self.dir / "out"
        result = self.expect(0, DATA / name, out, "--json", "--quiet", *options)
        events = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([events[0]["event"], events[-1]["event"]], ["plan", "done"])
        self.assertFalse((out / ".waste-convert").exists())

        reader, reference = WasteReader(out), WasteReader(GOLDEN / golden)
        self.assertEqual(reader.check(), reference.check())
        for key in ("arch", "tensor_prefix", "config", "expert_quant", "layers"):
            self.assertEqual(reader.manifest[key], reference.manifest[key], key)
        self.assertEqual(list(reader.trunk), list(reference.trunk))

        errors = mean_errors(reader, CheckpointReader(DATA / name))
        for kind, limit in read_json(GOLDEN / "errors.json")[golden].items():
            self.assertLessEqual(errors[kind], limit * (1 if kind.startswith("trunk") else experts), kind)
        summary = read_json(out / "quality.json")["summary"]
        self.assertEqual(summary.keys(), errors.keys())
        for kind, error in errors.items():
            self.assertAlmostEqual(summary[kind], error, delta=1e-4 * error)
            self.assertAlmostEqual(events[-1]["error"][kind], error, delta=1e-4 * error)
        self.expect(0, "compare", DATA / name, out, "--quiet")
        return out, reader, reference

    def test_kimi_k3(self):
        out, reader, reference = self.convert_and_measure("tiny-k3", "tiny-k3.waste", "--quality", "fast")
        for name in ("chat.json", "specials.json", "vision.json"):
            self.assertEqual(read_json(out / name), read_json(GOLDEN / "tiny-k3.waste" / name), name)
        self.assertEqual((out / "tokenizer.model").read_bytes(), (DATA / "tiny-k3" / "tiktoken.model").read_bytes())
        for name, entry in reader.trunk.items():
            expected = reference.trunk[name]["fmt"]
            # The golden converter stores these in 4 bits: that ruins the first, and costs much in the others.
            if name.startswith("mm_projector.proj") or ".mlp." in name and expected == 3:
                expected = 2
            self.assertEqual(entry["fmt"], expected, name)
            self.assertEqual(entry["off"] % (4096 if entry["bytes"] >= 65536 else 64), 0, name)

    def test_kimi_linear(self):
        out, _, _ = self.convert_and_measure("tiny-linear", "tiny-linear.waste", experts=0.82)
        self.assertFalse((out / "chat.json").exists())  # the tokenizer lacks this family's markers
        self.assertFalse((out / "vision.json").exists())

    def test_two_stages(self):
        self.convert_and_measure("tiny-linear", "tiny-linear.vq2.waste", "--experts", "vq2", experts=0.86)

    def test_packed_indices(self):
        self.convert_and_measure("tiny-linear", "tiny-linear.vq4p.waste", "--experts", "vq4p", "--quality", "fast")

    def test_eight_bit_trunk(self):
        out = self.dir / "out"
        self.expect(0, DATA / "tiny-k3", out, "--trunk-bits", "8", "--quiet", *CHEAP)
        formats = {t["fmt"] for t in WasteReader(out).trunk.values()}
        self.assertEqual(formats, {0, 2})

    def test_threads_follow_the_cpus_this_process_may_use(self):
        # The expected time depends on the threads: it tells which number was chosen.
        def expected(*options, **kwargs):
            result = self.expect(0, DATA / "tiny-linear", self.dir / "out", "--dry-run", "--json", *options, **kwargs)
            return json.loads(result.stdout.splitlines()[0])["expected_seconds"]

        cpu = min(os.sched_getaffinity(0))
        alone = expected(preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
        self.assertEqual(alone, expected("--threads", "1"))
        self.assertLess(expected("--threads", "2"), alone)

    def test_compare_finds_a_container_of_other_weights(self):
        out = self.dir / "out"
        self.expect(0, DATA / "tiny-linear", out, "--quiet", *CHEAP)
        manifest = read_json(out / "manifest.json")
        entry = next(t for t in manifest["trunk"] if t["name"] == "model.embed_tokens.weight")
        with open(out / "trunk.bin", "r+b") as f:
            f.seek(entry["off"] + 1000)
            f.write(b"\x40" * 1000)
        self.expect(1, "compare", DATA / "tiny-linear", out, "--quiet", says="recorded")

    def test_a_template_is_copied_only_with_its_markers(self):
        source = self.source()
        (source / "chat_template.jinja").write_text("{{ '<|open|>' }}")
        self.expect(0, source, self.dir / "known", "--quiet", *CHEAP)
        self.assertEqual((self.dir / "known" / "chat_template.jinja").read_text(), "{{ '<|open|>' }}")
        (source / "chat_template.jinja").write_text("{{ '<|im_user|>' }}")
        result = self.expect(0, source, self.dir / "unknown", *CHEAP)
        self.assertIn("no chat_template.jinja: the tokenizer does not have <|im_user|>", result.stdout)
        self.assertFalse((self.dir / "unknown" / "chat_template.jinja").exists())

    def test_probe_converts_one_layer_that_the_whole_run_then_keeps(self):
        out, plain = self.dir / "out", self.dir / "plain"
        result = self.expect(0, DATA / "tiny-linear", out, "--probe", *CHEAP)
        self.assertIn("layer 1: error w1", result.stdout)
        self.assertEqual(set(digests(out)), {"experts-L1.bin"})
        before = (out / "experts-L1.bin").stat().st_mtime_ns
        self.expect(0, DATA / "tiny-linear", out, "--quiet", *CHEAP)
        self.assertEqual((out / "experts-L1.bin").stat().st_mtime_ns, before)
        self.expect(0, DATA / "tiny-linear", plain, "--quiet", *CHEAP)
        self.assertEqual(digests(out), digests(plain))

    def test_layers_leave_the_container_unpublished_and_do_not_show(self):
        out, plain = self.dir / "out", self.dir / "plain"
        self.expect(0, DATA / "tiny-linear", out, "--layers", "4,2-3", "--quiet", *CHEAP)
        self.assertEqual(set(digests(out)), {"trunk.bin", "experts-L2.bin", "experts-L3.bin", "experts-L4.bin"})
        self.expect(0, DATA / "tiny-linear", out, "--layers", "1", "--quiet", *CHEAP)
        self.assertFalse((out / "manifest.json").exists())
        self.expect(0, DATA / "tiny-linear", out, "--quiet", *CHEAP)
        self.expect(0, DATA / "tiny-linear", plain, "--quiet", *CHEAP)
        self.assertEqual(digests(out), digests(plain))
        self.expect(2, DATA / "tiny-linear", self.dir / "x", "--layers", "0", *CHEAP, says="layer 0 is not an MoE layer")

    def test_importance_lowers_the_weighted_error(self):
        import numpy as np
        import struct
        rng = np.random.default_rng(1)
        source, columns = CheckpointReader(DATA / "tiny-linear"), {}
        for layer in range(1, 5):
            for kind, n in (("w1", 128), ("w3", 128), ("w2", 64)):
                columns[f"layers.{layer}.{kind}"] = np.exp(2 * rng.standard_normal(n)).astype("<f4")
        header, at = {}, 0
        for name, values in columns.items():
            header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [at, at + values.nbytes]}
            at += values.nbytes
        text = json.dumps(header).encode()
        path = self.dir / "importance.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in columns.values()))
        options = ("--quality", "fast", "--quiet")
        self.expect(0, DATA / "tiny-linear", self.dir / "plain", *options)
        self.expect(0, DATA / "tiny-linear", self.dir / "weighted", "--importance", path, *options)

        def weighted_error(out):
            reader, total = WasteReader(out), 0.0
            for layer in reader.layers():
                for expert in range(16):
                    for kind, decoded in reader.expert(layer, expert).items():
                        w = source[f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{kind}.weight"]
                        total += float((((w - decoded) ** 2) * columns[f"layers.{layer}.{kind}"]).sum())
            return total

        self.assertLess(weighted_error(self.dir / "weighted"), 0.95 * weighted_error(self.dir / "plain"))

        del header["layers.2.w1"]
        text = json.dumps({n: e for n, e in header.items()}).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for v in columns.values()))
        self.expect(1, DATA / "tiny-linear", self.dir / "x", "--importance", path, says="importance.safetensors")


if __name__ == "__main__":
    unittest.main()
