#!/usr/bin/python3
"""Sources that must not be converted, shards that must not be deleted, and a checkpoint of full size."""

import json
import os
import shutil
import subprocess
import time
import unittest

from support import CHEAP, CONVERT, DATA, ROOT, Case, Shard, digests, run, shard_of

INDEX = "model.safetensors.index.json"


class Refuse(Case):
    def refused(self, source, says, *options):
        out = self.dir / "out"
        result = self.expect(1, source, out, "--quiet", *CHEAP, *options, says=says)
        self.assertFalse((out / "manifest.json").exists())
        return result

    def test_everything_missing_is_named_at_once(self):
        source = self.source("tiny-k3")
        (source / "model-00002-of-000003.safetensors").unlink()
        (source / "tiktoken.model").unlink()
        os.truncate(source / "model-00003-of-000003.safetensors", 5_000_000)
        message = self.refused(source, "tiktoken.model: no such file").stderr
        self.assertIn("model-00002-of-000003.safetensors: no such file", message)
        self.assertIn("model-00003-of-000003.safetensors", message)
        self.assertIn("incomplete", message)
        self.assertFalse((self.dir / "out").exists())

    def test_missing_and_misshapen_tensors(self):
        source = self.source()
        shard = shard_of(source, "model.norm.weight")
        shard.header["model.norm.weights"] = shard.header.pop("model.norm.weight")
        shard.write()
        index = json.loads((source / INDEX).read_text())
        index["weight_map"]["model.norm.weights"] = index["weight_map"].pop("model.norm.weight")
        (source / INDEX).write_text(json.dumps(index))
        config = json.loads((source / "config.json").read_text())
        config["moe_intermediate_size"] = 72
        (source / "config.json").write_text(json.dumps(config))
        message = self.refused(source, "tensor model.norm.weight is missing").stderr
        self.assertIn("experts.*.w1.weight: expected shape [72, 128], found [64, 128] (16 times)", message)

    def test_values_that_are_not_finite(self):
        for name, at, bits in (("model.layers.2.block_sparse_moe.experts.3.w3.weight", 129, b"\xc0\x7f"),
                               ("model.embed_tokens.weight", 257, b"\x80\xff"),
                               ("model.norm.weight", 5, b"\x80\x7f")):
            source = self.source(to=f"nan-{at}")
            shard = shard_of(source, name)
            begin = shard.header[name]["data_offsets"][0]
            shard.data[begin + 2 * at:begin + 2 * at + 2] = bits
            shard.write()
            self.refused(source, f'tensor "{name}": row {at // 128}, column {at % 128}:')
            shutil.rmtree(self.dir / "out")

    def test_nan_scale_of_a_packed_expert(self):
        source = self.source("tiny-k3")
        name = "language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight"
        shard = shard_of(source, name + "_scale")
        shard.data[shard.header[name + "_scale"]["data_offsets"][0] + 4] = 255
        shard.write()
        self.refused(source, f'tensor "{name}_packed": row 1, column 0:', "--probe")

    def test_zero_rows_and_tiny_scales_survive(self):
        import numpy as np
        from waste_reader import CheckpointReader, WasteReader
        source = self.source()
        name = "model.layers.1.block_sparse_moe.experts.0.w1.weight"
        shard = shard_of(source, name)
        begin, _ = shard.header[name]["data_offsets"]
        row = 128 * 2
        shard.data[begin:begin + row] = bytes(row)
        values = np.frombuffer(bytes(shard.data[begin + row:begin + 2 * row]), "<u2").astype(np.uint32) << 16
        small = values.view(np.float32) * np.float32(2.0 ** -15)  # a row whose scale is a subnormal half
        shard.data[begin + row:begin + 2 * row] = (small.view(np.uint32) >> 16).astype("<u2").tobytes()
        shard.write()
        self.expect(0, source, self.dir / "out", "--quiet", *CHEAP)
        reader = WasteReader(self.dir / "out")
        decoded, original = reader.expert(1, 0)["w1"], CheckpointReader(source)[name]
        self.assertFalse(decoded[0].any())
        self.assertLess(np.linalg.norm(decoded[1] - original[1]), 0.5 * np.linalg.norm(original[1]))

    def test_other_architectures_and_bad_configs(self):
        source = self.source()
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
        self.refused(source, 'architecture "LlamaForCausalLM" is not supported')
        (source / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 7, "num_experts": 0}))
        message = self.refused(source, "rms_norm_eps").stderr
        self.assertIn("num_experts", message)

    def test_command_line(self):
        for options in (("--experts", "vq9"), ("--trunk-bits", "3"), ("--quality", "great"), ("--layers", "1,,2"),
                        ("--layers", "3-1"), ("--threads", "0"), ("--memory", "x"), ("--reclaim", "yes"),
                        ("--codebook-sample", "3"), ("--probe", "--layers", "1"), ("--unknown",), ("third",)):
            self.expect(2, DATA / "tiny-linear", self.dir / "out", *options)
        self.expect(2, DATA / "tiny-linear")
        self.assertFalse((self.dir / "out").exists())


class Reclaim(Case):
    def shards(self, source):
        return sorted(p.name for p in source.glob("*.safetensors"))

    def test_on_deletes_every_shard_and_changes_no_byte(self):
        plain, source, out = self.dir / "plain", self.source(), self.dir / "out"
        self.expect(0, DATA / "tiny-linear", plain, "--quiet", *CHEAP)
        result = self.expect(0, source, self.dir / "dry", "--reclaim", "dry", *CHEAP)
        self.assertEqual(result.stdout.count("would delete"), 3)
        self.assertEqual(len(self.shards(source)), 3)
        result = self.expect(0, source, out, "--reclaim", "on", *CHEAP)
        self.assertEqual(result.stdout.count("reclaim: deleted"), 3)
        self.assertEqual(self.shards(source), [])
        self.assertTrue((source / INDEX).exists())
        self.assertEqual(digests(out), digests(plain))
        # A rerun recognises its own work although the source is gone.
        self.assertIn("already converted", self.expect(0, source, out, *CHEAP).stdout)
        self.expect(1, source, self.dir / "elsewhere", *CHEAP, says="no such file")

    def test_killed_while_reclaiming(self):
        plain = self.dir / "plain"
        begin = time.monotonic()
        self.expect(0, DATA / "tiny-linear", plain, "--quiet", *CHEAP)
        seconds = time.monotonic() - begin
        source, out = self.source(), self.dir / "out"
        for i in range(40):
            process = subprocess.Popen([CONVERT, source, out, "--quiet", "--reclaim", "on", *CHEAP])
            try:
                self.assertEqual(process.wait(timeout=seconds * (0.2 + 0.02 * i)), 0)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.assertEqual(digests(out), digests(plain))
        self.assertEqual(self.shards(source), [])

    def test_unsafe_is_refused(self):
        source, out = self.source(), self.dir / "out"
        on = ("--reclaim", "on", "--quiet", *CHEAP)
        self.expect(2, source, out, *on, "--probe", says="--layers or --probe")
        self.expect(2, source, out, *on, "--layers", "1", says="--layers or --probe")
        self.expect(2, source, source, *on, says="same folder")
        shard = source / "model-00001-of-000003.safetensors"
        os.link(shard, self.dir / "second-name")
        self.expect(2, source, out, *on, says="hard links")
        os.rename(self.dir / "second-name", self.dir / "elsewhere")
        os.unlink(shard)
        os.symlink(self.dir / "elsewhere", shard)
        self.expect(2, source, out, *on, says="symbolic link")
        self.assertEqual(len(self.shards(source)), 3)

    def test_a_shard_with_a_tensor_the_container_does_not_hold_is_kept(self):
        source, out = self.source(), self.dir / "out"
        shard = Shard(source / "model-00002-of-000003.safetensors")
        end = len(shard.data)
        shard.header["rotary.inv_freq"] = {"dtype": "F32", "shape": [4], "data_offsets": [end, end + 16]}
        shard.data += bytes(16)
        shard.write()
        result = self.expect(0, source, out, "--reclaim", "on", *CHEAP)
        self.assertIn("the first rotary.inv_freq", result.stdout)
        self.assertEqual(self.shards(source), ["model-00002-of-000003.safetensors"])


class FullSize(Case):
    def ghost(self, *options):
        out = self.dir / "ghost"
        subprocess.run([ROOT / "scripts" / "make-ghost-checkpoint", DATA / "configs" / "kimi-k3.json", out, *options],
                       check=True, stdout=subprocess.DEVNULL)
        return out

    def test_dry_run_of_kimi_k3(self):
        source = self.ghost()
        result = run(source, self.dir / "out", "--dry-run", "--json")
        self.assertIn(result.returncode, (0, 3), result.stderr)  # 3: the disk is too small, said after the plan
        plan = json.loads(result.stdout.splitlines()[0])
        self.assertEqual(plan["tensors"], 497_220)
        self.assertEqual(plan["shards"], 96)
        self.assertEqual(plan["parameters"], 2_779_931_837_184)
        self.assertEqual((plan["layers"], plan["moe_layers"], plan["experts"]), (93, 92, 896))
        self.assertEqual(plan["record_bytes"], 12_406_784)
        self.assertEqual(plan["bank_bytes"], 92 * 896 * 12_406_784)
        self.assertEqual(plan["codebook_bytes"], 92 * 9 * (16 + 256 * 16))
        self.assertFalse((self.dir / "out").exists())
        self.assertLess(self.peak_rss(source), 600 << 20)

    def peak_rss(self, source):
        code = ("import resource, subprocess, sys\n"
                "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        # The test runner may ask malloc to fill what it hands out, which touches pages the parser never would.
        environment = {k: v for k, v in os.environ.items() if k != "MALLOC_PERTURB_"}
        result = subprocess.run(["python3", "-c", code, CONVERT, source, self.dir / "out", "--dry-run"],
                                capture_output=True, text=True, check=True, env=environment)
        return int(result.stdout) * 1024


if __name__ == "__main__":
    unittest.main()
