#!/usr/bin/python3
"""waste-run tokenize and detokenize from the command line."""
import json
import os
import unittest

from common import DATA, K3, LINEAR, refusal, run, run_json

CL100K = os.path.join(DATA, "golden/tokenizer/cl100k.tiktoken")
TINY = os.path.join(DATA, "tiny-k3/tiktoken.model")


class Tokenize(unittest.TestCase):
    def test_every_golden_case_that_an_argument_can_hold(self):
        with open(os.path.join(DATA, "golden/tokenizer/cases.json"), encoding="utf-8") as f:
            cases = json.load(f)
        for case in cases[::7]:
            text = case["text"].encode()
            for ranks, key in ((TINY, "tiny"), (CL100K, "cl100k")):
                self.assertEqual(run_json("tokenize", "--ranks", ranks, "-", stdin=text), {"ids": case[key]})
                ids = ",".join(map(str, case[key])).encode()
                self.assertEqual(run("detokenize", "--ranks", ranks, stdin=ids, check=0).stdout, text)

    def test_any_bytes_there_and_back(self):
        data = bytes(range(256)) * 3 + "Grüße 你好 <|open|>[EOS]".encode() + b"\xff\xc3"
        for model in (K3, LINEAR):
            ids = run("tokenize", model, stdin=data, check=0).stdout
            self.assertEqual(run("detokenize", model, "-", stdin=ids, check=0).stdout, data)

    def test_markup_only_on_request(self):
        self.assertEqual(run_json("tokenize", K3, "<|open|>", "--markup"), {"ids": [2051]})
        self.assertNotIn(2051, run_json("tokenize", K3, "<|open|>")["ids"])
        self.assertEqual(run("detokenize", K3, "2051,2049", check=0).stdout, b"<|open|>[EOS]")
        self.assertEqual(run_json("detokenize", K3, "120,195"), {"text": "x\ufffd"})

    def test_empty_text(self):
        self.assertEqual(run("tokenize", K3, "", check=0).stdout, b"\n")
        self.assertEqual(run("detokenize", K3, stdin=b"\n", check=0).stdout, b"")

    def test_refusals(self):
        self.assertIn("MODEL or --ranks", refusal("tokenize"))
        self.assertIn("no special tokens", refusal("tokenize", "--ranks", TINY, "--markup", "x"))
        self.assertIn("replaces MODEL", refusal("tokenize", "--ranks", TINY, K3, "x"))
        self.assertIn("unexpected argument", refusal("tokenize", K3, "x", "y"))
        self.assertIn("manifest.json", refusal("tokenize", "/nonexistent", "x", code=1))
        self.assertIn('"2304" is not', refusal("detokenize", K3, "1,2304"))
        self.assertIn('"abc" is not', refusal("detokenize", K3, "abc"))
        self.assertIn('"-1" is not', refusal("detokenize", K3, "--", "-1"))


if __name__ == "__main__":
    unittest.main()
