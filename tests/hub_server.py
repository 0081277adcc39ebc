#!/usr/bin/env python3
"""A Hugging Face Hub and its CDN on two ports of 127.0.0.1, for tests: Python standard library only.

In a test:

    with HubServer() as hub:
        hub.add_repo("org/model", {"config.json": b"{}", "model.safetensors": content(1, 10_000_000)})
        hub.fault("cdn", drop_after=5000, times=2)
        ... run something against hub.endpoint ...
        hub.requests("cdn")            # what was asked, in order
        hub.bytes_asked("cdn")         # sum of the ranges asked for and answered

On its own (`hub_server.py --repo org/model --file NAME=SIZE ...`) it prints its endpoint and serves until stdin
closes.

Files that LFS would hold (hub.add_repo(..., lfs=...) decides, by default everything from 1 MiB up and *.safetensors)
answer 302 to a signed URL of the CDN; small ones answer 307 to /api/resolve-cache on the Hub.
"""

import argparse
import hashlib
import http.server
import json
import os
import random
import re
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time
import urllib.parse

PAGE = 1000  # entries a page of a listing


def content(seed, size):
    """`size` reproducible random bytes."""
    piece = 64 << 20  # randbytes() cannot make more than 256 MiB at once
    return b"".join(random.Random("%s %d" % (seed, at)).randbytes(min(piece, size - at))
                    for at in range(0, size, piece))


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, name, files, lfs):
        self.name = name
        self.files = dict(files)
        self.lfs = lfs
        self.commit = hashlib.sha1(repr(sorted((p, git_sha1(d)) for p, d in files.items())).encode()).hexdigest()
        self.gated = False      # 403 GatedRepo
        self.private = False    # 401 without the token
        self.moved_to = None    # 307 of every API call
        self.extra_entries = []  # listed as they are, for hostile listings
        self.sha256 = {p: hashlib.sha256(d).hexdigest() for p, d in files.items()}
        self.git_sha1 = {p: git_sha1(d) for p, d in files.items()}

    def is_lfs(self, path):
        return self.lfs(path, self.files[path])

    def entry(self, path):
        data = self.files[path]
        item = {"type": "file", "path": path, "size": len(data), "oid": self.git_sha1[path]}
        if self.is_lfs(path):
            item["lfs"] = {"oid": self.sha256[path], "size": len(data), "pointerSize": 135}
            item["xetHash"] = "*" * 64
        return item

    def entries(self):
        folders = {p.rsplit("/", n)[0] for p in self.files for n in range(1, p.count("/") + 1)}
        items = [{"type": "directory", "path": d, "size": 0, "oid": "0" * 40} for d in sorted(folders)]
        return items + [self.entry(p) for p in sorted(self.files)] + self.extra_entries


class Fault:
    """What goes wrong, for the next `times` requests that match.

    where          "api", "tree", "resolve", "resolve-cache", "cdn", or "any"
    path           regular expression on the decoded request path (for the CDN: on the file's path)
    after          matching requests that are let through first

    status, headers, body      this answer instead of the right one
    extra_headers              added to the right answer
    reset                      the connection is reset before an answer
    delay                      seconds before the answer
    drop_after                 bytes of the body, then the connection is closed (reset, with drop_by_reset)
    stall_after                bytes of the body, then silence
    drip                       bytes per second for the body
    flip                       offset in the file of a byte to damage, when a range covers it
    ignore_range               200 with the whole file
    shift                      206 whose body and Content-Range begin that many bytes later
    wrong_total                206 with a total that is off by so much
    no_content_range           206 without Content-Range
    wrong_range_claim          206 whose Content-Range says so, with the right body
    short_length               Content-Length and body shorter by so much, Content-Range as asked
    long_body                  chunked body longer by so much
    html                       200 with a page
    expire                     all URLs signed so far stop working
    """

    def __init__(self, where, path=None, times=1, after=0, **what):
        self.where, self.path, self.times, self.after = where, path, times, after
        self.what = what
        self.used = 0

    def matches(self, where, path):
        if self.times <= 0 or self.where not in (where, "any"):
            return False
        if self.path is not None and not re.search(self.path, path):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.times -= 1
        self.used += 1
        return True


class HubServer:
    def __init__(self, cdn_rate=None, hub_port=0, token=None, chunk=64 << 10, tls=None):
        """`tls`: certificate and key files with which both servers then speak https."""
        self.repos = {}
        self.cdn_rate = cdn_rate  # bytes per second of each connection
        self.chunk = chunk
        self.token = token        # the only valid one; None accepts every request
        self.page = PAGE
        self.lock = threading.Lock()
        self.log = []
        self.faults = []
        self.signatures = {}      # signature -> generation
        self.generation = 0
        self.signed = 0
        self.cdn_etag = False     # the real CDN may send one or not; some clients need one
        self.tls = tls
        self.hub = self._serve(HubHandler, hub_port)
        self.cdn = self._serve(CdnHandler, 0)
        scheme = "https" if tls else "http"
        self.endpoint = "%s://127.0.0.1:%d" % (scheme, self.hub.server_address[1])
        self.cdn_url = "%s://127.0.0.1:%d" % (scheme, self.cdn.server_address[1])

    def _serve(self, handler, port):
        server = Server(("127.0.0.1", port), handler)
        server.owner = self
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            # The handshake is left to the connection's own thread.
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def add_repo(self, name, files, lfs=None):
        def by_default(path, data):
            return len(data) >= 1 << 20 or path.endswith(".safetensors")
        self.repos[name] = Repo(name, files, lfs or by_default)
        return self.repos[name]

    def fault(self, where, path=None, times=1, after=0, **what):
        fault = Fault(where, path, times, after, **what)
        self.faults.append(fault)
        return fault

    def take_fault(self, where, path):
        with self.lock:
            for fault in self.faults:
                if fault.matches(where, path):
                    if fault.what.get("expire"):
                        self.generation += 1
                    return fault.what
        return {}

    def sign(self, path):
        with self.lock:
            self.signed += 1
            signature = "s%d-%08x" % (self.signed, random.getrandbits(32))
            self.signatures[signature] = self.generation
        return "%s/%s?X-Signature=%s" % (self.cdn_url, urllib.parse.quote(path), signature)

    def is_signed(self, query):
        signature = urllib.parse.parse_qs(query).get("X-Signature", [""])[0]
        with self.lock:
            return self.signatures.get(signature) == self.generation

    # What tests ask about afterwards.

    def requests(self, where=None, path=None):
        with self.lock:
            return [r for r in self.log if (where is None or r["where"] == where)
                    and (path is None or re.search(path, r["path"]))]

    def bytes_asked(self, where=None, path=None):
        """Bytes of the ranges that were asked for and answered with a body."""
        return sum(r["asked"] for r in self.requests(where, path) if r["status"] in (200, 206))

    def bytes_sent(self, where=None, path=None):
        return sum(r["sent"] for r in self.requests(where, path) if r["status"] in (200, 206))

    def clear_log(self):
        with self.lock:
            self.log.clear()


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256
    block_on_close = False

    def handle_error(self, request, client_address):
        pass  # clients that leave are what these tests are about


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self):
        # A small send buffer: what the server counts as sent is then close to what the client has read.
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 << 10)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().setup()

    def log_message(self, *_):
        pass

    @property
    def owner(self):
        return self.server.owner

    def begin(self, where, path):
        self.record = {"where": where, "path": path, "method": self.command, "range": self.headers.get("Range"),
                       "authorization": self.headers.get("Authorization"), "headers": dict(self.headers),
                       "status": None, "sent": 0, "asked": 0, "time": time.monotonic()}
        with self.owner.lock:
            self.owner.log.append(self.record)
        what = self.owner.take_fault(where, path)
        if "delay" in what:
            time.sleep(what["delay"])
        return what

    def reset_connection(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def answer(self, status, headers=None, body=b""):
        self.record["status"] = status
        self.send_response(status)
        headers = dict(headers or {})
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in headers.items():
            for one in value if isinstance(value, list) else [value]:
                self.send_header(name, one)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, value, headers=None, status=200):
        self.answer(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(value).encode())

    def fail_as(self, what):
        """Faults that replace the answer; whether there was one."""
        if what.get("reset"):
            self.record["status"] = 0
            self.reset_connection()
            return True
        if "status" in what:
            self.answer(what["status"], what.get("headers"), what.get("body", b""))
            return True
        if what.get("html"):
            self.answer(200, {"Content-Type": "text/html; charset=utf-8"}, b"<html><body>Please log in</body></html>")
            return True
        return False

    def send_file(self, data, what, headers=None):
        size = len(data)
        first, last, ranged = 0, size - 1, False
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if match and not what.get("ignore_range"):
            ranged = True
            first = int(match[1])
            last = min(int(match[2] or size - 1), size - 1)
            if first >= size:
                return self.answer(416, {"Content-Range": "bytes */%d" % size})
        self.record["asked"] = last - first + 1
        headers = dict(headers or {}, **what.get("extra_headers", {}))
        body = memoryview(data)[first:last + 1]
        if ranged:
            shift = what.get("shift", 0)
            if shift:
                body = memoryview(data)[first + shift:last + 1]
            claim = "bytes %d-%d/%d" % (first + shift, last, size + what.get("wrong_total", 0))
            headers.setdefault("Content-Range", what.get("wrong_range_claim", claim))
            if what.get("no_content_range"):
                del headers["Content-Range"]
        if "flip" in what and first <= what["flip"] <= last:
            body = bytearray(body)
            body[what["flip"] - first] ^= 0x04
        if "short_length" in what:
            body = body[:len(body) - what["short_length"]]
        self.record["status"] = 206 if ranged else 200
        self.send_response(self.record["status"])
        for name, value in headers.items():
            self.send_header(name, value)
        chunked = "long_body" in what
        if chunked:
            body = bytes(body) + b"X" * what["long_body"]
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if chunked:
            self.wfile.write(b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")
            self.record["sent"] = len(body)
            return None
        return self.send_body(memoryview(body), what)

    def send_body(self, body, what):
        rate = what.get("drip", self.owner.cdn_rate)
        end = len(body)
        stop = min(end, what.get("drop_after", end), what.get("stall_after", end))
        step = self.owner.chunk if not rate else max(1, min(self.owner.chunk, int(rate * 0.05)))
        begin = time.monotonic()
        at = 0
        while at < stop:
            piece = body[at:min(at + step, stop)]
            self.wfile.write(piece)
            at += len(piece)
            self.record["sent"] = at
            if rate:
                ahead = at / rate - (time.monotonic() - begin)
                if ahead > 0:
                    time.sleep(ahead)
        if stop == end:
            return
        if "stall_after" in what:
            self.connection.settimeout(what.get("stall", 30))
            try:
                self.connection.recv(1)  # until the client leaves
            except OSError:
                pass
        if what.get("drop_by_reset"):
            self.reset_connection()
        self.close_connection = True


class HubHandler(Handler):
    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        what = self.begin("api", path)
        match = re.fullmatch(r"/api/models/(.+)/paths-info/([^/]+)", path)
        repo = self.owner.repos.get(match[1]) if match else None
        if self.fail_as(what):
            return
        if repo is None:
            self.answer(404)
            return
        self.answer_json([repo.entry(p) for p in json.loads(body)["paths"] if p in repo.files])

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        for where, pattern, serve in (
                ("api", r"/api/models/(?P<repo>.+)/revision/(?P<rev>.+)", self.revision),
                ("tree", r"/api/models/(?P<repo>.+)/tree/(?P<rev>[^/]+)", self.tree),
                ("resolve-cache", r"/api/resolve-cache/models/(?P<repo>[^/]+/[^/]+)/(?P<rev>[^/]+)/(?P<path>.+)",
                 self.resolve_cache),
                ("resolve", r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<rev>[^/]+)/(?P<path>.+)", self.resolve)):
            # Matched before decoding, so that an encoded slash stays inside its segment.
            match = re.fullmatch(pattern, url.path)
            if not match:
                continue
            parts = {k: urllib.parse.unquote(v) for k, v in match.groupdict().items()}
            what = self.begin(where, path)
            if self.fail_as(what):
                return None
            return serve(what=what, query=urllib.parse.parse_qs(url.query), **parts)
        self.begin("hub", path)
        return self.answer(404)

    def find(self, name, rev):
        """The repository, or None after a refusal has been sent."""
        owner = self.owner
        authorization = self.headers.get("Authorization")
        if owner.token is not None and authorization not in (None, "Bearer " + owner.token):
            self.answer_json({"error": "Invalid credentials in Authorization header"},
                             {"X-Error-Message": "Invalid credentials in Authorization header"}, 401)
            return None
        repo = owner.repos.get(name)
        authorised = owner.token is not None and authorization == "Bearer " + owner.token
        if repo is None or (repo.private and not authorised):
            # The real Hub says the same about a private repository as about none.
            self.answer_json({"error": "Repository not found"},
                             {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
                             404 if authorised else 401)
            return None
        if repo.moved_to is not None:
            location = self.path.replace(name, repo.moved_to, 1)
            self.answer(307, {"Location": location})
            return None
        if rev not in ("main", repo.commit):
            self.answer_json({"error": "Invalid rev id: " + rev}, {"X-Error-Code": "RevisionNotFound"}, 404)
            return None
        return repo

    def revision(self, repo, rev, what, query):
        found = self.find(repo, rev)
        if found is None:
            return
        self.answer_json({"_id": "0123456789abcdef01234567", "id": found.name, "modelId": found.name,
                          "sha": found.commit, "private": found.private, "gated": "auto" if found.gated else False,
                          "downloads": 1, "likes": 1, "lastModified": "2026-01-01T00:00:00.000Z",
                          "siblings": [{"rfilename": p} for p in sorted(found.files)]}, what.get("extra_headers"))

    def tree(self, repo, rev, what, query):
        found = self.find(repo, rev)
        if found is None:
            return
        entries = found.entries()
        start = int(query.get("cursor", ["0"])[0])
        headers = dict(what.get("extra_headers", {}))
        if start + self.owner.page < len(entries):
            link = "%s%s?recursive=true&cursor=%d" % (self.owner.endpoint, urllib.parse.urlsplit(self.path).path,
                                                      start + self.owner.page)
            headers["Link"] = '<%s>; rel="next"' % link
        self.answer_json(entries[start:start + self.owner.page], headers)

    def resolve(self, repo, rev, path, what, query):
        found = self.find(repo, rev)
        if found is None:
            return
        if found.gated:
            message = "Access to model %s is restricted. You must have access to it." % found.name
            self.answer_json({"error": message}, {"X-Error-Code": "GatedRepo", "X-Error-Message": message}, 403)
            return
        if path not in found.files:
            self.answer_json({"error": "Entry not found"},
                             {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}, 404)
            return
        headers = {"X-Repo-Commit": found.commit, **what.get("extra_headers", {})}
        if found.is_lfs(path):
            headers.setdefault("X-Linked-Size", str(len(found.files[path])))
            headers.setdefault("X-Linked-ETag", '"%s"' % found.sha256[path])
            headers.setdefault("Location", self.owner.sign(repo + "/" + path))
            self.answer(302, headers, b"Found. Redirecting")
            return
        target = "/api/resolve-cache/models/%s/%s/%s" % (repo, found.commit, urllib.parse.quote(path))
        self.answer(307, {"Location": target, "ETag": '"%s"' % found.git_sha1[path], **headers})

    def resolve_cache(self, repo, rev, path, what, query):
        found = self.find(repo, rev)
        if found is not None:
            self.send_file(found.files[path], what,
                           {"ETag": '"%s"' % found.git_sha1[path], "X-Repo-Commit": found.commit})


class CdnHandler(Handler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)[1:]
        what = self.begin("cdn", path)
        if self.fail_as(what):
            return
        if not self.owner.is_signed(url.query):
            self.answer(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
            return
        repo = self.owner.repos["/".join(path.split("/")[:2])]
        name = "/".join(path.split("/")[2:])
        headers = {"Content-Type": "application/octet-stream"}
        if self.owner.cdn_etag:
            headers["ETag"] = '"%s"' % repo.sha256[name]
        self.send_file(repo.files[name], what, headers)


def main():
    parser = argparse.ArgumentParser(description="A Hub and a CDN on 127.0.0.1")
    parser.add_argument("--repo", default="org/model")
    parser.add_argument("--file", action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--rate", type=float, help="bytes per second of each CDN connection")
    arguments = parser.parse_args()
    files = {}
    for seed, item in enumerate(arguments.file):
        name, size = item.rsplit("=", 1)
        files[name] = content(seed, int(size))
    with HubServer(cdn_rate=arguments.rate, chunk=1 << 20) as server:
        server.add_repo(arguments.repo, files)
        print(server.endpoint, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    os.umask(0o022)
    main()
