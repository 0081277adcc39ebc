#!/usr/bin/env python3
"""Fails when an include points where the layout forbids.

A program folder includes itself, cli/ and container/; cli/ includes container/core; inside container/ the order is
core < format, codec < footprint and includes point left only (format may use codec: the reader decodes).
container/ neither prints, exits nor reads the environment."""

import os
import re
import sys

PROGRAMS = ("download", "convert", "verify", "runtime")
ALLOWED = {
    "container/core": {"container/core"},
    "container/codec": {"container/core", "container/codec", "container/format/types.h"},
    "container/format": {"container/core", "container/codec", "container/format"},
    "container/footprint": {"container/core", "container/codec", "container/format", "container/footprint"},
    "cli": {"cli", "container/core"},
} | {p: {p, "cli", "container"} for p in PROGRAMS}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
# Output through a FILE* or buffer that the caller hands in is fine; the process's own streams and end are not.
FORBIDDEN = re.compile(r"\b(std::cout|std::cerr|stdout|stderr|std::exit|std::abort|getenv)\b|\b(printf|exit|abort)\s*\(")


def sources(top):
    for folder, _, files in os.walk(top):
        for name in files:
            if name.endswith((".h", ".cc", ".inc")):
                yield os.path.join(folder, name)


def main():
    root, problems, files = sys.argv[1], [], 0
    for layer, allowed in ALLOWED.items():
        for path in sources(os.path.join(root, layer)):
            files += 1
            name = os.path.relpath(path, root)
            with open(path, encoding="utf-8") as f:
                text = f.read()
            for target in INCLUDE.findall(text):
                if not any(target == a or target.startswith(a + "/") for a in allowed):
                    problems.append(f"{name}: may not include {target}")
            if layer.startswith("container/"):
                code = re.sub(r"//[^\n]*", "", text)
                for match in FORBIDDEN.finditer(code):
                    problems.append(f"{name}: {match.group(0).strip()} does not belong in the library")
    print("\n".join(problems) if problems else f"{files} files keep the layering")
    return 1 if problems or files < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
