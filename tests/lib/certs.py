# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made with openssl: an authority, and leaves of it that are right or wrong in one way each."""
import ssl
import subprocess
from pathlib import Path

EXTENSIONS = "subjectAltName={}\nbasicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\n"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.key, self.pem = self._key("ca"), self.folder / "ca.pem"
        openssl("req", "-x509", "-new", "-key", self.key, "-subj", "/CN=test authority", "-days", "2", "-out", self.pem)

    def _key(self, name):
        path = self.folder / f"{name}.key"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
        return path

    @property
    def text(self):
        return self.pem.read_text()

    def leaf(self, name, names, expired=False, self_signed=False):
        """(certificate, key) for these names ("DNS:api.test")."""
        key, pem, request, more = self._key(name), *(self.folder / f"{name}.{e}" for e in ("pem", "csr", "ext"))
        more.write_text(EXTENSIONS.format(names))
        openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        if self_signed:
            openssl("x509", "-req", "-in", request, "-signkey", key, "-days", "2", "-extfile", more, "-out", pem)
        elif expired:
            (self.folder / "index").write_text("")
            config = self.folder / "ca.conf"
            config.write_text(f"[ca]\ndefault_ca=x\n[x]\ndatabase={self.folder}/index\nnew_certs_dir={self.folder}\nrand_serial=yes\n"
                              "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
            openssl("ca", "-batch", "-notext", "-config", config, "-in", request, "-cert", self.pem, "-keyfile", self.key, "-extfile", more,
                    "-startdate", "20200101000000Z", "-enddate", "20200102000000Z", "-out", pem)
        else:
            openssl("x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self.key, "-CAcreateserial", "-days", "2", "-extfile", more,
                    "-out", pem)
        return pem, key

    def server(self, name, names, alpn=None, **how):
        """A context for a server with such a leaf."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.leaf(name, names, **how))
        if alpn:
            context.set_alpn_protocols(alpn)
        return context


def client(pem, verify=True):
    """A context for a client that trusts this certificate and no other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=pem)
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
