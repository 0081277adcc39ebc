"""What the command-line tests of waste-run share."""
import json
import os
import subprocess

RUN = os.environ["WASTE_RUN"]
DATA = os.environ["WASTE_TEST_DATA"]
K3 = os.path.join(DATA, "golden/tiny-k3.waste")
LINEAR = os.path.join(DATA, "golden/tiny-linear.waste")


def run(*args, stdin=b"", check=None):
    """Runs waste-run; output and input are bytes. `check`: the exit code it must have."""
    result = subprocess.run([RUN, *map(str, args)], input=stdin, capture_output=True)
    if check is not None and result.returncode != check:
        raise AssertionError(f"{args}: exit {result.returncode}, expected {check}: {result.stderr.decode()}")
    return result


def run_json(*args, stdin=b""):
    return json.loads(run(*args, "--json", stdin=stdin, check=0).stdout)


def refusal(*args, stdin=b"", code=2):
    """The message of a call that must be refused with one line, and nothing on standard output."""
    result = run(*args, stdin=stdin, check=code)
    message = result.stderr.decode()
    assert result.stdout == b"", result.stdout
    assert message.startswith("waste-run: ") and message.count("\n") == 1, message
    return message
