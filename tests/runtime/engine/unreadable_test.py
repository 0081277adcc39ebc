#!/usr/bin/python3
"""A record that the disk cannot read ends the run with exit 1 and the record's name; no expert is skipped.

    unreadable_test.py WASTE_RUN SHIM GOLDEN_CONTAINER"""

import os
import re
import subprocess
import sys


def generate(tool, model, **environment):
    command = [tool, "generate", model, "In the beginning God created", "-n", "8", "--temperature", "0"]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=120)


def main():
    tool, shim, model = sys.argv[1:]
    plain = generate(tool, model)
    assert plain.returncode == 0, plain.stderr
    shimmed = generate(tool, model, LD_PRELOAD=shim)
    assert shimmed.returncode == 0 and shimmed.stdout == plain.stdout, "the shim alone must change nothing"
    bank = os.path.join(os.path.realpath(model), "experts-L2.bin")
    broken = generate(tool, model, LD_PRELOAD=shim, WASTE_SHIM_UNREADABLE=bank)
    print(broken.stderr.strip())
    assert broken.returncode == 1, broken
    assert re.search(r"experts-L2\.bin: expert \d+ at offset \d+", broken.stderr), broken.stderr
    assert len(broken.stderr.strip().splitlines()) == 1, "one line"


if __name__ == "__main__":
    main()
