"""TLS is a matter of the URL: who proves itself by the named authority is talked to, and nobody else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import pytest

from ops.blackboard.redis import RedisBlackboard
from ops.broker.rabbitmq import RabbitMQBroker
from ops.own_servers import free_port
from ops.settings import load_settings
from schemas.broker import COMMANDS
from schemas.errors import Unavailable
from schemas.messages import MessageType, message
from tests.support.boards import opening
from tests.support.servers import OwnRabbitMQ, OwnRedis

pytestmark = pytest.mark.own_server

DEADLINE_SECONDS = 2.0
SUBMIT = message(MessageType.SUBMIT, "r", sender="producer", recipient="orchestrator")


@dataclass(frozen=True)
class Guarded:
    """Two servers that demand a certificate of their clients, and where the certificates lie."""

    folder: Path
    redis_port: int
    rabbitmq_port: int

    def redis_url(self, *, host: str = "127.0.0.1", authority: str = "right", certificate: bool = True) -> str:
        query = {"ssl_ca_certs": self.folder / f"{authority}.crt"} if authority else {}
        if certificate:
            query |= {"ssl_certfile": self.folder / "client.crt", "ssl_keyfile": self.folder / "client.key"}
        return f"rediss://{host}:{self.redis_port}/0?{urlencode(query)}"

    def rabbitmq_url(self, *, host: str = "127.0.0.1", authority: str = "right", certificate: bool = True) -> str:
        query = {"cafile": self.folder / f"{authority}.crt"} if authority else {}
        if certificate:
            query |= {"certfile": self.folder / "client.crt", "keyfile": self.folder / "client.key"}
        return f"amqps://guest:guest@{host}:{self.rabbitmq_port}/?{urlencode(query)}"


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path, name: str) -> None:
    subject = ("-subj", f"/CN={name} authority")
    openssl(
        folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, "-keyout", f"{name}.key", "-out", f"{name}.crt"
    )


def make_certificate(folder: Path, name: str) -> None:
    """A certificate of the right authority for a server at 127.0.0.1 (no other name), or for a client."""
    openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text("subjectAltName=IP:127.0.0.1\n")
    signer = ("-CA", "right.crt", "-CAkey", "right.key", "-CAcreateserial")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signer, "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.crt")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Both servers with TLS."""
    folder = tmp_path_factory.mktemp("tls")
    for authority in ("right", "wrong"):
        make_authority(folder, authority)
    for name in ("server", "client"):
        make_certificate(folder, name)
    found = Guarded(folder, free_port(), free_port())
    for_redis = {
        "tls-port": str(found.redis_port),
        "tls-ca-cert-file": f"{folder}/right.crt",
        "tls-cert-file": f"{folder}/server.crt",
        "tls-key-file": f"{folder}/server.key",
        "tls-auth-clients": "yes",
    }
    for_rabbitmq = {
        "listeners.ssl.default": f"127.0.0.1:{found.rabbitmq_port}",
        "ssl_options.cacertfile": f"{folder}/right.crt",
        "ssl_options.certfile": f"{folder}/server.crt",
        "ssl_options.keyfile": f"{folder}/server.key",
        "ssl_options.verify": "verify_peer",
        "ssl_options.fail_if_no_peer_cert": "true",
    }
    with OwnRedis(folder / "redis", options=for_redis), OwnRabbitMQ(folder / "rabbitmq", options=for_rabbitmq):
        yield found


def board_at(url: str) -> RedisBlackboard:
    return RedisBlackboard(url, call_timeout_seconds=DEADLINE_SECONDS, deadline_seconds=DEADLINE_SECONDS, pool_size=4)


def broker_at(url: str) -> RabbitMQBroker:
    return RabbitMQBroker(url, prefix="tls.v1", call_timeout_seconds=DEADLINE_SECONDS)


async def test_both_servers_are_reached_by_tls_with_the_authority_and_certificate_that_the_url_names(tls: Guarded) -> None:
    settings = load_settings({"redis_url": tls.redis_url(), "rabbitmq_url": tls.rabbitmq_url()}, env_file=None)
    async with board_at(settings.redis_url) as board, broker_at(settings.rabbitmq_url) as broker:
        await board.write("r", opening())
        assert (await board.read("r", ["request"])).value("request") == b'"hello"'
        assert [event.position for event in await board.events("r")] == [1]
        await broker.publish(COMMANDS, SUBMIT)


REFUSED = {
    "another authority": {"authority": "wrong"},
    "an authority that the system does not know": {"authority": ""},
    "a name that is not in the certificate": {"host": "localhost"},
    "no certificate of the client's own": {"certificate": False},
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_redis_or_a_client_that_cannot_prove_itself_is_refused(tls: Guarded, case: str) -> None:
    with pytest.raises(Unavailable):
        async with board_at(tls.redis_url(**REFUSED[case])):  # type: ignore[arg-type]  # one table for both servers
            pass


@pytest.mark.parametrize("case", REFUSED)
async def test_a_rabbitmq_or_a_client_that_cannot_prove_itself_is_refused(tls: Guarded, case: str) -> None:
    async with broker_at(tls.rabbitmq_url(**REFUSED[case])) as broker:  # type: ignore[arg-type]  # one table for both servers
        with pytest.raises(Unavailable):
            await broker.publish(COMMANDS, SUBMIT)
