"""Reads .waste containers and safetensors checkpoints with numpy: a second implementation, written from
container/FORMAT.md's facts alone, that the tests hold the programs against. Every check raises Damaged.

    /usr/bin/python3 tests/waste_reader.py DIR             checks everything, prints what the container holds
    /usr/bin/python3 tests/waste_reader.py DIR CHECKPOINT  prints the mean relative error per kind as JSON
"""

import json
import pathlib
import struct
import sys
import zlib

import numpy as np

MATRICES = ("w1", "w3", "w2")  # gate, up, down: the order in a record
RECORD_HEADER = struct.Struct("<I2H2B3H8I")
BOOK_HEADER = struct.Struct("<IH2B2I")
FORMATS = {"VQ3R": (3, 256, 8, 4), "VQ2R": (2, 256, 8, 4), "VQ4P": (4, 64, 6, 8)}  # stages, entries, bits, header code


class Damaged(Exception):
    pass


def require(condition, *what):
    if not condition:
        raise Damaged(" ".join(str(w) for w in what))


class WasteReader:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.manifest = json.loads((self.directory / "manifest.json").read_text())
        require(self.manifest["format_version"] == 0, "version")
        self.config = self.manifest["config"]
        quant = self.manifest["expert_quant"]
        self.stages, self.entries, self.bits, self.code = FORMATS[quant["fmt"]]
        require(quant["stages"] == self.stages and quant["entries"] == self.entries, "expert_quant", quant)
        require(quant["vec_dim"] == 8 and quant["index_block"] == 64 and quant.get("index_bits", 8) == self.bits,
                "expert_quant", quant)
        require(quant["bits_per_weight"] == self.stages * self.bits / 8, "bits_per_weight")
        self.inner = self.config["moe_intermediate_size"]
        self.width = self.config.get("routed_expert_hidden_size") or self.config["hidden_size"]
        self.trunk = {t["name"]: t for t in self.manifest["trunk"]}
        self._trunk_bytes = None
        self._bank = (None, b"")
        self.books = self._read_books()

    def _read_books(self):
        data = (self.directory / "codebooks.bin").read_bytes()
        size = 16 + self.entries * 8 * 2
        require(len(data) % size == 0, "codebooks.bin: size", len(data))
        books = []
        for position in range(len(data) // size):
            book = data[position * size:(position + 1) * size]
            if not any(book):
                books.append(None)
                continue
            header = BOOK_HEADER.unpack_from(book)
            require(header == (0x4B424357, position % 65536, 4, 8, self.entries, 0), "codebook", position, header)
            values = np.frombuffer(book, "<f2", offset=16).reshape(self.entries, 8).astype(np.float32)
            require(np.isfinite(values).all(), "codebook", position, "not finite")
            books.append(values)
        return books

    def layers(self):
        return sorted(int(n) for n in self.manifest["layers"])

    def shape(self, kind):
        return (self.inner, self.width) if kind < 2 else (self.width, self.inner)

    def record(self, layer, expert):
        """The checked bytes of one record, and where its three index blocks and its scales start."""
        entry = self.manifest["layers"][str(layer)]
        if self._bank[0] != layer:
            self._bank = (layer, (self.directory / entry["file"]).read_bytes())
        bank = self._bank[1]
        require(len(bank) == entry["bytes"], entry["file"], "size", len(bank))
        starts, at = [], 48
        for kind in range(3):
            rows, cols = self.shape(kind)
            starts.append(at)
            at += (rows + 63) // 64 * 64 * (cols // 8) * self.stages * self.bits // 8
        starts.append(at)
        end = at + 2 * (2 * self.inner + self.width)
        size = (end + 4095) // 4096 * 4096
        require(entry["bytes"] == size * entry["experts"], entry["file"], "bytes")
        record = bank[expert * size:(expert + 1) * size]
        crc = zlib.crc32(record[48:end])
        expected = (0x50584557, layer, expert, self.code, 0, entry["codebook_base"] % 65536, 0, 0, size // 4096,
                    *starts, crc, 0, 0)
        found = RECORD_HEADER.unpack_from(record)
        require(found == expected, f"layer {layer} expert {expert}: header", found, "expected", expected)
        require(not any(record[end:]), f"layer {layer} expert {expert}: padding")
        return record, starts

    def expert(self, layer, expert):
        """{"w1": [inner][width], "w3": ..., "w2": [width][inner]} in float32."""
        record, starts = self.record(layer, expert)
        base = self.manifest["layers"][str(layer)]["codebook_base"]
        scales = np.frombuffer(record, "<f2", 2 * self.inner + self.width, starts[3]).astype(np.float32)
        out, first_scale, per_vector = {}, 0, self.stages * self.bits // 8
        for kind, name in enumerate(MATRICES):
            rows, cols = self.shape(kind)
            blocks = (rows + 63) // 64
            packed = np.frombuffer(record, np.uint8, blocks * 64 * cols // 8 * per_vector, starts[kind])
            packed = packed.reshape(blocks, cols // 8, 64, per_vector)
            rest = packed.swapaxes(1, 2).reshape(blocks * 64, cols // 8, per_vector)
            require(not rest[rows:].any(), f"layer {layer} expert {expert} {name}: missing rows are not zero")
            index = self._unpack(rest[:rows])
            total = np.zeros((rows, cols // 8, 8), np.float32)
            for stage in range(self.stages):
                total += self.books[base + kind * self.stages + stage][index[stage]]
            out[name] = total.reshape(rows, cols) * scales[first_scale:first_scale + rows, np.newaxis]
            first_scale += rows
        return out

    def _unpack(self, b):
        if self.bits == 8:
            return [b[..., s] for s in range(self.stages)]
        word = b[..., 0].astype(np.uint32) | b[..., 1].astype(np.uint32) << 8 | b[..., 2].astype(np.uint32) << 16
        return [word >> 6 * s & 63 for s in range(4)]

    def tensor(self, name):
        entry = self.trunk[name]
        if self._trunk_bytes is None:
            self._trunk_bytes = (self.directory / "trunk.bin").read_bytes()
        data, shape = self._trunk_bytes, entry["shape"]
        count = int(np.prod(shape, dtype=np.int64))
        if entry["fmt"] == 0:
            require(entry["bytes"] == 4 * count, name, "bytes")
            return np.frombuffer(data, "<f4", count, entry["off"]).reshape(shape)
        require(entry["fmt"] in (2, 3) and entry["group"] == 128, name, "format")
        cols = shape[-1]
        rows, groups = count // cols, (cols + 127) // 128
        if entry["fmt"] == 2:
            codes = np.frombuffer(data, np.int8, rows * groups * 128, entry["off"]).astype(np.float32)
            code_bytes = rows * groups * 128
        else:
            nibbles = np.frombuffer(data, np.uint8, rows * groups * 64, entry["off"])
            codes = np.empty(rows * groups * 128, np.float32)
            codes[0::2], codes[1::2] = nibbles & 15, nibbles >> 4
            codes -= 8
            code_bytes = rows * groups * 64
        require(entry["scale_off"] >= entry["off"] + code_bytes, name, "scale_off")
        require(entry["scale_off"] + rows * groups * 2 <= entry["off"] + entry["bytes"], name, "bytes")
        scales = np.frombuffer(data, "<f2", rows * groups, entry["scale_off"]).astype(np.float32)
        require(np.isfinite(scales).all(), name, "scales")
        values = (codes.reshape(rows, groups, 128) * scales.reshape(rows, groups, 1)).reshape(rows, groups * 128)
        require(not values[:, cols:].any(), name, "padding columns")
        return values[:, :cols].reshape(shape)

    def check(self):
        """Decodes everything; returns (experts, trunk tensors)."""
        experts = 0
        for layer in self.layers():
            for expert in range(self.manifest["layers"][str(layer)]["experts"]):
                require(all(np.isfinite(w).all() for w in self.expert(layer, expert).values()), layer, expert)
                experts += 1
        extents = sorted((t["off"], t["off"] + t["bytes"], t["name"]) for t in self.trunk.values())
        for (_, end, name), (begin, _, other) in zip(extents, extents[1:]):
            require(end <= begin, name, "overlaps", other)
        for name in self.trunk:
            require(np.isfinite(self.tensor(name)).all(), name)
        return experts, len(self.trunk)


class CheckpointReader:
    """Name -> float32 array of a sharded safetensors folder; MXFP4 pairs under the name without a suffix."""

    DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U8": "u1"}
    E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.config = json.loads((self.directory / "config.json").read_text())
        self.places = {}
        for path in sorted(self.directory.glob("*.safetensors")):
            data = path.read_bytes()
            (length,) = struct.unpack_from("<Q", data)
            for name, entry in json.loads(data[8:8 + length]).items():
                if name != "__metadata__":
                    self.places[name] = (data, 8 + length + entry["data_offsets"][0], entry)

    def _raw(self, name):
        data, offset, entry = self.places[name]
        count = int(np.prod(entry["shape"], dtype=np.int64))
        return np.frombuffer(data, self.DTYPES[entry["dtype"]], count, offset).reshape(entry["shape"]), entry["dtype"]

    def __getitem__(self, name):
        if name in self.places:
            values, dtype = self._raw(name)
            if dtype == "BF16":
                return (values.astype(np.uint32) << 16).view(np.float32)
            return values.astype(np.float32)
        packed, scale = self._raw(name + "_packed")[0], self._raw(name + "_scale")[0]
        codes = np.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1, 32)
        values = self.E2M1[codes] * np.exp2(scale.astype(np.float32) - 127)[..., np.newaxis]
        return values.reshape(packed.shape[0], -1).astype(np.float32)


def relative_error(reference, decoded):
    reference = reference.astype(np.float64).ravel()
    norm = np.linalg.norm(reference)
    return float(np.linalg.norm(reference - decoded.ravel()) / norm) if norm > 0 else 0.0


def mean_errors(container, checkpoint):
    """{"w1": ..., "w2": ..., "w3": ..., "trunk Q4G": ..., "trunk Q8G": ...}: the mean over all matrices of a kind."""
    errors = {}
    prefix = container.manifest["tensor_prefix"]
    for layer in container.layers():
        for expert in range(container.manifest["layers"][str(layer)]["experts"]):
            for kind, decoded in container.expert(layer, expert).items():
                name = f"{prefix}model.layers.{layer}.block_sparse_moe.experts.{expert}.{kind}.weight"
                errors.setdefault(kind, []).append(relative_error(checkpoint[name], decoded))
    for name, entry in container.trunk.items():
        error = relative_error(checkpoint[name], container.tensor(name))
        if entry["fmt"] == 0:
            require(error == 0, name, "is stored as F32 and differs")
        else:
            errors.setdefault({2: "trunk Q8G", 3: "trunk Q4G"}[entry["fmt"]], []).append(error)
    return {kind: sum(values) / len(values) for kind, values in sorted(errors.items())}


if __name__ == "__main__":
    reader = WasteReader(sys.argv[1])
    if len(sys.argv) > 2:
        print(json.dumps(mean_errors(reader, CheckpointReader(sys.argv[2])), indent=1))
    else:
        print("sound: %d expert records, %d trunk tensors" % reader.check())
