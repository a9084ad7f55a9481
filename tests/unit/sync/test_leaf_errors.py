"""Every error of a link has a remedy."""

import pytest

from eyot_sync.leaf.errors import remedy

TLS = "TLS handshake error: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (TLS + "certificate has expired (_ssl.c:1006)", "renew the certificate there"),
        (TLS + "certificate is not yet valid (_ssl.c:1006)", "the clock here is behind"),
        (TLS + "self-signed certificate (_ssl.c:1006)", "ca_file"),
        (TLS + "self-signed certificate in certificate chain (_ssl.c:1006)", "ca_file"),
        (TLS + "certificate signature failure (_ssl.c:1006)", "ca_file"),
        (TLS + "unable to get local issuer certificate (_ssl.c:1006)", "ca_file"),
        (TLS + "Hostname mismatch, certificate is not valid for 'hub'. (_ssl.c:1006)", "for other names"),
        (TLS + "IP address mismatch, certificate is not valid for '10.0.0.1'. (_ssl.c:1006)", "for other names"),
        ("TLS alert of the hub: certificate expired", "cert_file"),
        ("TLS handshake error: [SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:992)", "speaks no TLS"),
        ("TLS handshake error: something else", "check the certificates"),
        ("Authorization Violation", "credentials"),
        ("Connection refused", "leafnodes block"),
    ],
)
def test_the_remedy_fits_the_error(error: str, advice: str) -> None:
    assert advice in remedy(error)
