#!/usr/bin/env python3
"""Repositories that are missing, private, gated, renamed or without the file; tokens that are bad, odd, echoed; and
that no token ever leaves for anyone but the Hub."""

import subprocess

import harness
from harness import HubServer, NETWORK, OK, SHARD, TOKEN, USAGE, Case


class Refusals(Case):
    token = TOKEN

    def assert_asked_once(self, where):
        """A permanent refusal is not asked for again."""
        self.assertEqual(len(self.hub.requests(where)), 1)

    def test_missing(self):
        self.assert_fails(self.download(repo="org/none"), NETWORK, "org/none does not exist, is private, or is gated",
                          "HF_TOKEN", "--token-file")
        self.assert_asked_once("api")

    def test_missing_with_a_token(self):
        result = self.download(repo="org/none", env={"HF_TOKEN": TOKEN})
        self.assert_fails(result, NETWORK, "org/none does not exist, is private, or is gated", "from HF_TOKEN")

    def test_private(self):
        self.repo.private = True
        self.assert_fails(self.download(), NETWORK, "private", "HF_TOKEN")
        self.assert_ok(self.download(env={"HF_TOKEN": TOKEN}))

    def test_gated(self):
        self.repo.gated = True
        page = self.hub.endpoint + "/org/model"
        self.assert_fails(self.download(), NETWORK, "gated", "accept its licence at " + page, "HF_TOKEN")
        self.assert_fails(self.download(env={"HF_TOKEN": TOKEN}), NETWORK, "gated", page)
        self.assert_absent()

    def test_bad_token(self):
        self.assert_fails(self.download(env={"HF_TOKEN": "hf_wrong"}), NETWORK, "the token from HF_TOKEN is not valid",
                          "/settings/tokens")
        self.assert_asked_once("api")

    def test_token_with_a_newline(self):
        self.repo.private = True
        self.assert_ok(self.download(env={"HF_TOKEN": TOKEN + "\r\n"}))
        result = self.download(env={"HF_TOKEN": TOKEN[:5] + "\n" + TOKEN[5:]})
        self.assert_fails(result, USAGE, "HF_TOKEN")
        self.assertNotIn(TOKEN[5:], result.stderr)

    def test_token_file(self):
        self.repo.private = True
        path = self.dir / "token"
        path.write_text(TOKEN + "\n")
        self.assert_ok(self.download("--token-file", path, env={"HF_TOKEN": "hf_wrong"}))

    def test_missing_revision(self):
        self.assert_fails(self.download("--revision", "v9/x"), NETWORK, "no revision", "v9/x")

    def test_revision_by_commit(self):
        self.assert_ok(self.download("--revision", self.repo.commit))

    def test_file_that_the_listing_has_and_the_server_not(self):
        self.repo.extra_entries = [{"type": "file", "path": "ghost.json", "size": 5, "oid": "0" * 40}]
        self.assert_fails(self.download(), NETWORK, 'no file "ghost.json"')

    def test_other_refusals(self):
        for status in (400, 403, 410, 451):
            with self.subTest(status=status):
                self.hub.clear_log()
                self.hub.fault("api", status=status, body=b'{"error": "not today"}',
                               headers={"Content-Type": "application/json"})
                self.assert_fails(self.download(), NETWORK, "not today")
                self.assert_asked_once("api")

    def test_the_token_goes_to_the_hub_and_nowhere_else(self):
        self.repo.private = True
        result = self.download(env={"HF_TOKEN": TOKEN})
        self.assert_ok(result)
        for request in self.hub.requests():
            expected = None if request["where"] == "cdn" else "Bearer " + TOKEN
            self.assertEqual(request["authorization"], expected, request["path"])
            self.assertNotIn(TOKEN, str({k: v for k, v in request["headers"].items() if k != "Authorization"}))
        self.assertTrue(self.hub.requests("cdn"))
        for path in self.to.rglob("*"):
            if path.is_file():
                self.assertNotIn(TOKEN.encode(), path.read_bytes())

    def test_a_redirect_to_another_port_gets_no_token(self):
        location = self.hub.cdn_url + "/api/models/org/model/revision/main"
        self.hub.fault("api", status=307, headers={"Location": location})
        self.download("--retries", "0", env={"HF_TOKEN": TOKEN})
        elsewhere = self.hub.requests("cdn")
        self.assertEqual(len(elsewhere), 1)
        self.assertIsNone(elsewhere[0]["authorization"])

    def test_a_server_that_echoes_the_token(self):
        for headers, body in (({"X-Error-Message": "bad request with " + TOKEN}, b""),
                              ({}, b'{"error": "you sent Bearer %s"}' % TOKEN.encode())):
            self.hub.fault("api", status=400, headers=headers, body=body)
            result = self.download(env={"HF_TOKEN": TOKEN})  # the harness looks for the token in the output
            self.assert_fails(result, NETWORK, "(token)")

    def test_control_characters_from_a_server(self):
        self.hub.fault("api", status=400, headers={"X-Error-Message": "a\x1b[2Jb"})
        result = self.download()
        self.assert_fails(result, NETWORK)
        self.assertNotIn("\x1b", result.stderr)

    def test_implicit_token_can_be_switched_off(self):
        self.assertEqual(self.download(env={"HF_TOKEN": TOKEN, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}).code, OK)
        self.assertTrue(all(r["authorization"] is None for r in self.hub.requests()))

    def test_behind_a_proxy(self):
        # The Hub of this test is its own proxy: it takes absolute URLs, too.
        env = {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": self.hub.endpoint, "no_proxy": "127.0.0.1"}
        self.assert_ok(self.download(env=env))


class Tls(Case):
    token = TOKEN

    def make_hub(self):
        self.certificate = self.dir / "certificate.pem"
        key = self.dir / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", self.certificate],
                       check=True, capture_output=True)
        return HubServer(token=self.token, tls=(self.certificate, key))

    def trusted(self, **more):
        return {"SSL_CERT_FILE": str(self.certificate), "HF_TOKEN": TOKEN, **more}

    def test_https_with_the_token_to_the_hub_only(self):
        self.repo.private = True
        self.assert_ok(self.download(env=self.trusted()))
        self.assertTrue(self.hub.requests("cdn"))
        self.assertTrue(all(r["authorization"] is None for r in self.hub.requests("cdn")))

    def test_unknown_certificate_is_refused_at_once(self):
        self.assert_fails(self.download(env={"HF_TOKEN": TOKEN}), NETWORK, "certificate")
        self.assertEqual(self.hub.requests(), [])

    def test_no_step_down_to_http(self):
        with HubServer() as plain:
            self.hub.fault("resolve", SHARD, times=1000, status=302,
                           headers={"Location": plain.cdn_url + "/org/model/" + SHARD})
            self.assert_fails(self.download(env=self.trusted()), NETWORK, "from https to http")
            self.assertEqual(plain.requests(), [])


if __name__ == "__main__":
    harness.main()
