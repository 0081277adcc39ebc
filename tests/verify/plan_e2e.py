#!/usr/bin/python3
"""waste-verify plan from the command line, for a config, a checkpoint, a container and a ghost of Kimi K3."""
import json
import os
import unittest
import xml.etree.ElementTree

from support import Case, ROOT

CONFIGS = os.path.join(ROOT, "tests", "data", "configs")
K3 = os.path.join(CONFIGS, "kimi-k3.json")
SPEEDS = ("--disk-gbs", "2", "--gflops", "100")


def text_boxes(svg):
    """Left, top, right and bottom of every text, a character being about half as wide as it is high."""
    for e in xml.etree.ElementTree.parse(svg).iter():
        if not e.tag.endswith("text"):
            continue
        high = {"title": 16, "small": 11}.get(e.get("class"), 13)
        wide, x, y = 0.55 * high * len(e.text), float(e.get("x")), float(e.get("y"))
        if e.get("transform"):  # the y axis' label, upright and centred
            yield e.text, (x - high, y - wide / 2, x, y + wide / 2)
        else:
            left = x - {"middle": wide / 2, "end": wide}.get(e.get("text-anchor"), 0)
            yield e.text, (left, y - high, left + wide, y)


class Plan(Case):
    def test_config(self):
        report = self.json(0, "plan", K3, *SPEEDS, "--like", "v0-f32")
        self.assertEqual(report["kind"], "config")
        self.assertEqual(report["record_bytes"], 12406784)
        self.assertEqual(report["floor"]["bytes"], sum(p["bytes"] for p in report["floor"]["parts"]))
        self.assertAlmostEqual(report["like"]["bytes"] / 2**30, 29.06, delta=0.3)
        self.assertLess(report["floor"]["bytes"], report["like"]["bytes"])
        self.assertEqual(report["disk"]["source_bytes"], 1560839958272)
        self.assertEqual(report["rows"][0]["memory_bytes"], report["floor"]["bytes"])
        self.assertEqual(report["rows"][-1]["hit_rate"], 1)
        self.assertIn("given", report["estimates"]["disk"])
        self.assertIn("Kimi-Linear", report["estimates"]["hit_rates"])

    def test_ghost_container_equals_config(self):
        ghost = self.ghost("kimi-k3.json")
        a, b = (self.json(0, "plan", m, *SPEEDS) for m in (K3, ghost))
        self.assertEqual(a["rows"], b["rows"])
        self.assertEqual(a["floor"], b["floor"])
        self.assertIsNone(b["convert_seconds"])
        # Holes are not a disk: without a given speed one is assumed, and said to be.
        self.assertIn("assumed", self.json(0, "plan", ghost, "--gflops", "1")["estimates"]["disk"])

    def test_checkpoint_and_container(self):
        checkpoint = os.path.join(ROOT, "tests", "data", "tiny-k3")
        report = self.json(0, "plan", checkpoint, *SPEEDS)
        self.assertEqual(report["kind"], "checkpoint")
        shards = sum(os.path.getsize(os.path.join(checkpoint, n)) for n in os.listdir(checkpoint)
                     if n.endswith(".safetensors"))
        self.assertEqual(report["disk"]["source_bytes"], shards)
        self.assertGreater(report["convert_seconds"], 0)
        text = self.ok("plan", self.copy("tiny-k3.waste", "x.waste"))
        self.assertIn("everything stays in memory", text)
        self.assertIn("measured on this container", text)

    def test_trace_disk_report_and_plot(self):
        trace = self.path("trace.jsonl")
        with open(trace, "w") as f:
            for t in range(50):
                f.write(json.dumps({"tok": t, "layers": [[(t + i) % 32 for i in range(4)]] * 8}) + "\n")
        disk = self.path("disk.json")
        with open(disk, "w") as f:
            json.dump({"rows": [{"order": "sequential", "gb_per_s": 9.0}, {"order": "random", "gb_per_s": 1.5},
                                {"order": "random", "gb_per_s": 2.5}]}, f)
        svg = self.path("plan.svg")
        model = self.copy("tiny-k3.waste", "x.waste")
        report = self.json(0, "plan", model, "--trace", trace, "--disk", disk, "--gflops", "10", "--plot", svg)
        self.assertEqual(report["estimates"]["disk_gb_per_s"], 2.5)
        self.assertIn("replayed", report["estimates"]["hit_rates"])
        labels = [e.text for e in xml.etree.ElementTree.parse(svg).iter() if e.tag.endswith("text")]
        self.assertIn("floor", labels)

    def test_no_label_of_a_plot_covers_another(self):
        svg = self.path("plan.svg")
        for config in ("kimi-k3.json", "kimi-linear.json"):
            self.ok("plan", os.path.join(CONFIGS, config), *SPEEDS, "--plot", svg)
            boxes = list(text_boxes(svg))
            self.assertGreater(len(boxes), 20)
            for i, (name, a) in enumerate(boxes):
                for other, b in boxes[:i]:
                    apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
                    self.assertTrue(apart, (config, name, other))

    def test_refusals(self):
        self.refused(2, "plan")
        self.refused(1, "plan", self.path("absent.json"))
        self.assertIn("neither", self.refused(1, "plan", self.dir))
        self.refused(2, "plan", K3, "--ctx", "0")
        self.refused(2, "plan", K3, "--experts", "vq9")
        self.refused(2, "plan", K3, "--trunk-bits", "5")
        self.refused(2, "plan", K3, "--like", "v1")
        self.refused(2, "plan", K3, "--disk-gbs", "-1")
        self.refused(2, "plan", K3, "--disk-gbs", "1", "--gflops", "0")
        self.refused(1, "plan", K3, "--disk", K3)
        trace = self.path("trace.jsonl")
        with open(trace, "w") as f:
            f.write('{"layers": [[900]]}\n')
        self.assertIn("another model", self.refused(1, "plan", K3, "--trace", trace, *SPEEDS))
        with open(self.path("config.json"), "w") as f:
            f.write('{"hidden_size": 12}')
        self.refused(1, "plan", self.dir)


if __name__ == "__main__":
    unittest.main()
