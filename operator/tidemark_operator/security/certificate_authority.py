"""Create certificate authorities, and issue certificates for requests (CSRs).

Keys are ECDSA on P-256. A certificate has the names that its issuer gives it, never those that the
request asks for: a request contributes its public key, and proves that its sender has the private
one. An authority of a user (0187) may have another kind of key, and be below other authorities.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(minutes=5)  # of the machines that verify
MAX_COMMON_NAME = 64  # X.509's ub-common-name
MIN_RSA_BITS = 2048

AuthorityKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey

_SIGNING = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_TALKING = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class InvalidRequest(ValueError):
    """An error: not a certificate signing request, not signed by its own key, or a weak key."""


class InvalidAuthority(ValueError):
    """An error: a certificate and key that cannot issue certificates; the text is for the user."""


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """The names of a certificate; the first of `names` is the identity that peers verify."""

    names: tuple[str, ...]
    addresses: tuple[str, ...] = ()

    @property
    def distinguished_name(self) -> x509.Name:
        common_name = self.names[0][:MAX_COMMON_NAME]
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])

    @property
    def usages(self) -> tuple[x509.ObjectIdentifier, ...]:
        return (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True)
class UserSubject:
    """A client of a pool: its certificate has a user, and groups (0186)."""

    user: str
    groups: tuple[str, ...] = ()
    names: tuple[str, ...] = ()  # alternative names: none
    addresses: tuple[str, ...] = ()

    @property
    def distinguished_name(self) -> x509.Name:
        groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in self.groups]
        return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, self.user)])

    @property
    def usages(self) -> tuple[x509.ObjectIdentifier, ...]:
        return (ExtendedKeyUsageOID.CLIENT_AUTH,)


Subject = CertificateSubject | UserSubject


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: x509.Certificate
    key: AuthorityKey
    created_s: int  # its certificate is valid a little earlier, for clocks that are behind
    above: tuple[x509.Certificate, ...] = ()  # that issued it, for clients that trust these only

    @classmethod
    def create(cls, name: str, *, now_s: int, life_s: int) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tidemark"),
                x509.NameAttribute(NameOID.COMMON_NAME, name[:MAX_COMMON_NAME]),
            ]
        )
        public_key = key.public_key()
        begins = _moment(now_s)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins - CLOCK_SKEW)
            .not_valid_after(begins + timedelta(seconds=life_s))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNING, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key, now_s)

    @classmethod
    def parse(
        cls, certificate_pem: str, key_pem: str, root_pem: str = "", *, created_s: int
    ) -> "Authority":
        """Read an authority; certificates after the first may be of authorities above it.

        Raises InvalidAuthority.
        """
        try:
            certificate, *above = x509.load_pem_x509_certificates(certificate_pem.encode())
            if root_pem.strip():
                above += x509.load_pem_x509_certificates(root_pem.encode())
            key = serialization.load_pem_private_key(key_pem.encode(), password=None)
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        except (ValueError, TypeError, x509.ExtensionNotFound) as error:
            raise InvalidAuthority(
                f"expected a PEM certificate and key of a CA: {error}"
            ) from error
        if not isinstance(key, AuthorityKey):
            raise InvalidAuthority("expected an ECDSA, RSA or Ed25519 key")
        if isinstance(key, rsa.RSAPrivateKey) and key.key_size < MIN_RSA_BITS:
            raise InvalidAuthority(f"expected an RSA key of at least {MIN_RSA_BITS} bits")
        if not constraints.value.ca or not _may_sign(certificate):
            raise InvalidAuthority("expected a certificate with CA:TRUE that may sign certificates")
        if certificate.public_key() != key.public_key():
            raise InvalidAuthority("the key is not the certificate's")
        return cls(certificate, key, created_s, _issuers_of(certificate, above))

    @property
    def fingerprint(self) -> str:
        return self.certificate.fingerprint(hashes.SHA256()).hex()

    @property
    def ends_s(self) -> int:
        return int(self.certificate.not_valid_after_utc.timestamp())

    @property
    def certificate_pem(self) -> str:
        return _pem(self.certificate)

    @property
    def chain_pem(self) -> str:
        """Return its certificate, and those of the authorities above it."""
        return "".join(map(_pem, self.chain))

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        return (self.certificate, *self.above)

    @property
    def _sent_pem(self) -> str:
        """Return what is sent with a certificate, so that a client may trust the root only."""
        return "".join(_pem(each) for each in self.chain if each.issuer != each.subject)

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()

    def issue(
        self, request_pem: str, subject: CertificateSubject, *, now_s: int, life_s: int
    ) -> "IssuedCertificate":
        """Issue a certificate for the key of a request; it never outlives the authority.

        Raises InvalidRequest.
        """
        return self._issue(_public_key(request_pem), subject, now_s=now_s, life_s=life_s)

    def _issue(
        self,
        public_key: ec.EllipticCurvePublicKey,
        subject: Subject,
        *,
        now_s: int,
        life_s: int,
    ) -> "IssuedCertificate":
        ends = min(_moment(now_s + life_s), self.certificate.not_valid_after_utc)
        # Not before the authority: verifiers check each certificate's own time, and so do users.
        begins = max(_moment(now_s) - CLOCK_SKEW, self.certificate.not_valid_before_utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject.distinguished_name)
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_TALKING, critical=True)
            .add_extension(x509.ExtendedKeyUsage(list(subject.usages)), critical=False)
            .add_extension(_authority_key_identifier(self.certificate), critical=False)
        )
        if subject.names:
            builder = builder.add_extension(_alternative_names(subject), critical=False)
        algorithm = None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        certificate = builder.sign(self.key, algorithm)
        return IssuedCertificate(_pem(certificate) + self._sent_pem, int(ends.timestamp()))

    def issue_with_key(self, subject: Subject, *, now_s: int, life_s: int) -> "CertificateWithKey":
        """Issue a certificate for a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        issued = self._issue(key.public_key(), subject, now_s=now_s, life_s=life_s)
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return CertificateWithKey(issued, pem.decode())


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    pem: str
    ends_s: int


@dataclass(frozen=True, slots=True)
class CertificateWithKey:
    certificate: IssuedCertificate
    key_pem: str

    def __repr__(self) -> str:  # a key is in no log
        return f"CertificateWithKey({self.certificate!r})"


def is_current(
    certificate_pem: str, request_pem: str, subject: CertificateSubject, issuer: Authority
) -> bool:
    """Return whether a certificate is as one that this authority would issue now.

    It is a broker's word, which gets it nothing but no other certificate.
    """
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        certificate.verify_directly_issued_by(issuer.certificate)
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return certificate.public_key() == _public_key(request_pem) and set(found) == set(
            _alternative_names(subject)
        )
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False


def bundle(authorities: Sequence[Authority]) -> str:
    """Return the certificates that brokers trust in each other, as one PEM text."""
    return "".join(each.certificate_pem for each in authorities)


def bundle_of_clients(authorities: Sequence[Authority]) -> str:
    """Return the certificates to trust in brokers, with those above, which most clients need."""
    return "".join(dict.fromkeys(_pem(each) for found in authorities for each in found.chain))


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _issuers_of(
    certificate: x509.Certificate, others: Sequence[x509.Certificate]
) -> tuple[x509.Certificate, ...]:
    """Return the certificates above one, up to the root, as far as they are among others."""
    by_subject = {each.subject: each for each in reversed(others)}
    found: list[x509.Certificate] = []
    while certificate.issuer != certificate.subject and certificate.issuer in by_subject:
        certificate = by_subject.pop(certificate.issuer)
        found.append(certificate)
    return tuple(found)


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return usage.key_cert_sign


def _authority_key_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        found = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key = cast(CertificateIssuerPublicKeyTypes, authority.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found)


def _alternative_names(subject: Subject) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(subject.names)]
    for address in dict.fromkeys(subject.addresses):
        names.append(x509.IPAddress(ipaddress.ip_address(address)))
    return x509.SubjectAlternativeName(names)


def _public_key(request_pem: str) -> ec.EllipticCurvePublicKey:
    try:
        request = x509.load_pem_x509_csr(request_pem.encode())
        key = request.public_key()
        if not request.is_signature_valid:
            raise InvalidRequest("the request is not signed by its own key")
    except (ValueError, TypeError, InvalidSignature) as error:
        raise InvalidRequest(f"expected a certificate signing request (PEM): {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise InvalidRequest("expected an ECDSA key on P-256")
    return key


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
