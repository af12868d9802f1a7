"""Translates Kafka properties from librdkafka's spelling to that of Spark's client, which is Java's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestration.settings.values import SettingsError
from publisher import SecretText

# Properties that must not be passed on: they have another meaning in Java's client and would stop it, or Spark refuses them.
_LIBRDKAFKA_ONLY: Final = frozenset(
    {
        "auto.offset.reset",
        "builtin.features",
        "client.software.name",
        "client.software.version",
        "debug",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.ssl.certificate.verification",
        "group.id",
        "interceptor.classes",
        "log_level",
        "partition.assignment.strategy",
        "partitioner",
        "plugin.library.paths",
        "sasl.kerberos.keytab",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.principal",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.providers",
        "transactional.id",
    }
)
_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
LOGIN: Final = re.compile(
    r'\s*[\w.$]+\s+(required|requisite|sufficient|optional)(\s+[\w.]+\s*=\s*("(\\.|[^"\\])*"|[^\s";]+))*\s*;\s*', re.IGNORECASE
)
_KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"


# The properties that name Java's trust store.
TRUST_STORES: Final = frozenset({"ssl.truststore.location", "ssl.truststore.certificates"})


def to_java(kafka: Mapping[str, str]) -> dict[str, str]:
    """Translates properties from librdkafka's spelling to that of the Java client.

    Properties with the same name in Java are passed on; Java ignores those that it doesn't know. Those that differ are
    translated: SASL users and Kerberos keytabs (to ``sasl.jaas.config``), certificates and keys in PEM files (to a PEM
    trust store and key store). What can't be translated (OAuth, cipher lists) must be set in ``kafka_java``. Raises
    SettingsError for a file that can't be read and for a key that is not PKCS#8, the only form that Java reads.
    """
    java = {name: value for name, value in kafka.items() if name not in _LIBRDKAFKA_ONLY}
    if "security.protocol" in java:
        java["security.protocol"] = java["security.protocol"].upper()
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms")
    if mechanism:
        java["sasl.mechanism"] = mechanism
    if "sasl.jaas.config" not in java and (login := _jaas(kafka, (mechanism or "GSSAPI").upper())):
        java["sasl.jaas.config"] = login
    if java.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    return java | _trust_store(kafka) | _key_store(kafka)


def _jaas(kafka: Mapping[str, str], mechanism: str) -> str | None:
    if mechanism in _LOGIN_MODULES and "sasl.username" in kafka:
        options = {"username": kafka["sasl.username"], "password": kafka.get("sasl.password", "")}
        module = _LOGIN_MODULES[mechanism]
    elif mechanism == "GSSAPI" and "sasl.kerberos.keytab" in kafka:
        options = {"useKeyTab": "true", "storeKey": "true", "keyTab": kafka["sasl.kerberos.keytab"]}
        if "sasl.kerberos.principal" in kafka:
            options["principal"] = kafka["sasl.kerberos.principal"]
        module = _KERBEROS_MODULE
    else:
        return None
    quoted = (f'{name}="{_escaped(value)}"' for name, value in options.items())
    return f"{module} required {' '.join(quoted)};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _trust_store(kafka: Mapping[str, str]) -> dict[str, str]:
    if pem := kafka.get("ssl.ca.pem"):
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem}
    location = kafka.get("ssl.ca.location")
    # `probe` looks for the system's certificates; Java uses its own by default
    if not location or location == "probe":
        return {}
    if Path(location).is_dir():
        raise SettingsError(
            [
                f"ssl.ca.location is the directory {location}, which Java can't use: name one PEM file, or set "
                "ssl.truststore.location in kafka_java"
            ]
        )
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}


def _key_store(kafka: Mapping[str, str]) -> dict[str, str]:
    if "ssl.keystore.location" in kafka:
        # PKCS#12 is the only kind librdkafka reads
        return {"ssl.keystore.type": "PKCS12"}
    chain = kafka.get("ssl.certificate.pem") or _read_pem(kafka, "ssl.certificate.location")
    key = kafka.get("ssl.key.pem") or _read_pem(kafka, "ssl.key.location")
    if not chain or not key:
        return {}
    # `BEGIN PRIVATE KEY` or `BEGIN ENCRYPTED PRIVATE KEY`; openssl's older forms say RSA or EC in between
    if not re.search("-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", key):
        where = kafka.get("ssl.key.location", "ssl.key.pem")
        raise SettingsError(
            [f"the key in {where} is not PKCS#8, which Java needs: convert it with `openssl pkcs8 -topk8 -in OLD -out NEW`"]
        )
    # As text: Java reads certificate and key from one file, but librdkafka has them in two.
    return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": SecretText(key)}


def _read_pem(kafka: Mapping[str, str], name: str) -> str | None:
    if name not in kafka:
        return None
    try:
        return Path(kafka[name]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError([f"{name} names {kafka[name]}, which can't be read: {reason}"]) from None
