"""TLS for every host of the web, by one throw-away certificate that nobody signed."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@cache
def server_context() -> ssl.SSLContext:
    """TLS 1.3 with an ECDSA key on P-256, as most of the web has it, and without session tickets: every connection is a whole handshake."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "synthetic.example")])
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day).sign(
        key, hashes.SHA256()
    )
    pem = serialization.Encoding.PEM
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    with tempfile.NamedTemporaryFile() as file:
        file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()) + made.public_bytes(pem))
        file.flush()
        context.load_cert_chain(file.name)
    return context
