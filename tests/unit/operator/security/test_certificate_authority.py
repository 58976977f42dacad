"""Certificate authorities, and what they issue to whom."""

import ipaddress
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tidemark_broker.security.private_key import PrivateKey
from tidemark_operator.security.certificate_authority import (
    Authority,
    CertificateSubject,
    InvalidAuthority,
    InvalidRequest,
)

from tests.support.certificates import new_authority

NOW_S = int(time.time())
SUBJECT = CertificateSubject(("broker-1.default.shop.tidemark.internal", "localhost"), ("::1",))


def issued(authority: Authority, *, life_s: int = 3600) -> x509.Certificate:
    request = PrivateKey().request_pem("I am broker 7")
    found = authority.issue(request, SUBJECT, now_s=NOW_S, life_s=life_s)
    return x509.load_pem_x509_certificate(found.pem.encode())


def test_certificate_has_the_names_that_the_issuer_gives() -> None:
    certificate = issued(new_authority())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(SUBJECT.names)
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("::1")]
    assert "I am broker 7" not in certificate.subject.rfc4514_string()


def test_certificate_is_no_authority_and_ends() -> None:
    certificate = issued(new_authority())
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and not constraints.value.ca
    assert int(certificate.not_valid_after_utc.timestamp()) == NOW_S + 3600


def test_certificate_does_not_outlive_its_authority() -> None:
    authority = Authority.create("pool", now_s=NOW_S, life_s=100)
    certificate = issued(authority, life_s=3600)
    assert certificate.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_authority_is_read_as_it_was_written() -> None:
    authority = new_authority()
    read = Authority.parse(authority.certificate_pem, authority.key_pem, created_s=5)
    assert (read.fingerprint, read.created_s) == (authority.fingerprint, 5)


def test_strange_authorities_are_rejected() -> None:
    first, second = new_authority(), new_authority()
    with pytest.raises(InvalidAuthority, match="not the certificate's"):
        Authority.parse(first.certificate_pem, second.key_pem, created_s=0)
    with pytest.raises(InvalidAuthority, match="certificate and key of a CA"):
        Authority.parse("", first.key_pem, created_s=0)
    leaf = first.issue_with_key(SUBJECT, now_s=int(time.time()), life_s=60)
    with pytest.raises(InvalidAuthority, match="CA:TRUE"):
        Authority.parse(leaf.certificate.pem, leaf.key_pem, created_s=0)
    assert leaf.key_pem not in repr(leaf)


@pytest.mark.parametrize("text", ["", "x", new_authority().certificate_pem])
def test_what_is_no_request_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest):
        new_authority().issue(text, SUBJECT, now_s=NOW_S, life_s=60)


def test_request_with_a_foreign_signature_is_rejected() -> None:
    request = x509.load_pem_x509_csr(PrivateKey().request_pem("a").encode())
    der = bytearray(request.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(InvalidRequest):
        new_authority().issue(forged.decode(), SUBJECT, now_s=NOW_S, life_s=60)


def test_request_of_another_kind_of_key_is_rejected() -> None:
    key = rsa.generate_private_key(65537, 2048)
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(InvalidRequest, match="P-256"):
        new_authority().issue(request.decode(), SUBJECT, now_s=NOW_S, life_s=60)
