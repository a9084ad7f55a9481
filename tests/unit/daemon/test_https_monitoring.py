"""The monitoring pages over HTTPS."""

from __future__ import annotations

import json
import signal
import ssl
import urllib.request
from pathlib import Path

from cryptography import x509

from support.servers.eyotd import Eyotd
from support.trust.certificates import Authority


def test_pages_over_https(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    config = "https: 127.0.0.1:%LEAF_PORT%\n" + authority.block("server", "verify: true")
    with Eyotd(config, tmp_path) as server:
        trusting = ssl.create_default_context(cafile=str(authority.ca_file))
        url = f"https://localhost:{server.leaf_port}/varz"
        with urllib.request.urlopen(url, context=trusting, timeout=15) as response:  # nobody is asked for a certificate
            page = json.load(response)
        assert page["https_port"] == server.leaf_port
        assert server.monitor("/varz")["server_id"] == page["server_id"]
        assert f"Starting https monitor on 127.0.0.1:{server.leaf_port}" in server.log()

        def shown() -> x509.Certificate:
            pem = ssl.get_server_certificate(("127.0.0.1", server.leaf_port))
            return x509.load_pem_x509_certificate(pem.encode())

        def assert_expiry_told() -> None:
            ends = shown().not_valid_after_utc
            assert server.monitor("/varz")["tls_cert_not_after"] == ends.strftime("%Y-%m-%dT%H:%M:%SZ")
            with urllib.request.urlopen(f"http://127.0.0.1:{server.monitor_port}/metrics", timeout=15) as response:
                lines = response.read().decode().splitlines()
            assert [float(line.split()[-1]) for line in lines if line.startswith("eyot_certificate")] == [
                ends.timestamp()
            ]

        assert_expiry_told()
        before = shown().serial_number
        authority.issue("server", seconds=50_000)
        server.signal(signal.SIGHUP)
        server.wait_log("Reloaded server configuration")
        assert shown().serial_number != before
        assert_expiry_told()


def test_https_needs_a_certificate(tmp_path: Path) -> None:
    server = Eyotd("https: 127.0.0.1:%LEAF_PORT%", tmp_path)
    server.start(wait=False)
    assert server.process is not None
    assert server.process.wait(15) == 78
    assert "monitoring over HTTPS needs a certificate" in server.log()
