"""Real processes that a real RabbitMQ, Kafka or SQS delivers to, through trouble, with TLS and a user where there is
one.

The server is paused, killed, slowed, full, emptied and fed with nonsense; nodes of Kafka die, workers come, leave and
die. No run is lost, none is done twice, and the history checker has nothing to say.
"""

from __future__ import annotations

import asyncio
import gc
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_all
from contextlib import contextmanager
from operator import methodcaller

import pytest
from broker_server import BrokerServer, KafkaServer, RabbitMqServer, SqsServer
from brokered import Cluster, run_through, wait, wait_for_events, wait_for_load

from mainspring.adapter import AdapterContext, open_adapter
from mainspring.errors import BrokerUnavailable

pytestmark = pytest.mark.brokers

KINDS = (RabbitMqServer, KafkaServer, SqsServer)
UNREADABLE = {b"not a notice", b'{"run_id": 1}'}


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[BrokerServer]]]:
    """Servers of this module's own. They start at the same time, and each test waits for its own only."""

    def start(server: BrokerServer) -> BrokerServer:
        server.start()
        return server

    made: list[BrokerServer] = [kind(tmp_path_factory.mktemp(kind.name)) for kind in KINDS]
    with ThreadPoolExecutor() as pool:
        started = {server.name: pool.submit(start, server) for server in made}
        yield started
        wait_for_all(started.values())
        list(pool.map(methodcaller("stop"), made))


@pytest.fixture(params=[kind.name for kind in KINDS])
def server(request: pytest.FixtureRequest, starting: dict[str, Future[BrokerServer]]) -> BrokerServer:
    return starting[request.param].result()


@contextmanager
def missed(cluster: Cluster) -> Iterator[None]:
    """Before the body, processes notice that the broker is gone, and go on without it. The body brings it back, and
    they notice that."""
    wait(cluster.has_lost_broker)
    wait_for_load(cluster, 20)
    known = cluster.count("broker.back")
    yield
    wait_for_events(cluster, "broker.back", known + 1)


def pause(cluster: Cluster, server: BrokerServer) -> None:
    server.pause()
    with missed(cluster):
        server.resume()


def kill(cluster: Cluster, server: BrokerServer) -> None:
    server.kill()
    with missed(cluster):
        server.start()


def slow_down(cluster: Cluster, server: BrokerServer) -> None:
    server.delay(2.0)
    with missed(cluster):
        server.delay(0.0)


def fill_up(cluster: Cluster, server: BrokerServer) -> None:
    server.fill(full=True)
    with missed(cluster):
        server.fill(full=False)


def lose_leaders(cluster: Cluster, server: BrokerServer) -> None:
    """A node leads a third of the partitions. The other two elect leaders for them, and work goes on."""
    server.kill(0)
    wait_for_load(cluster, 50)


def rebalance(cluster: Cluster) -> None:
    """Workers join and leave, about one a second."""
    for number in range(5):
        joined = cluster.start("worker")
        cluster.processes.append(joined)
        wait_for_load(cluster, 30)
        (joined.terminate if number % 2 else joined.kill)()


def kill_forge_and_empty(cluster: Cluster, server: BrokerServer) -> None:
    server.forge(50)
    for body in UNREADABLE:
        server.poison(body)
    for number in (1, 2):
        cluster.processes[number].kill()
        cluster.processes[number].wait(20)
        cluster.processes[number] = cluster.start("worker")
    # A worker may die between burying a message and acknowledging it: then it is buried twice.
    wait(lambda: server.dead_letters() == UNREADABLE)
    server.empty()
    wait_for_load(cluster, 30)


# aiokafka leaves connections that it gave up, while they were being made, to the garbage collector, which complains.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nothing_is_lost_or_done_twice_whatever_happens_to_the_broker(
    tmp_path_factory: pytest.TempPathFactory, server: BrokerServer
) -> None:
    def trouble(cluster: Cluster) -> None:
        wait_for_load(cluster, 50)  # Workers may still be joining a group.
        pause(cluster, server)
        slow_down(cluster, server)
        fill_up(cluster, server)
        if isinstance(server, KafkaServer):
            rebalance(cluster)
            lose_leaders(cluster, server)
        kill(cluster, server)
        kill_forge_and_empty(cluster, server)

    run_through(tmp_path_factory.mktemp("cluster"), server.url, trouble, pace_s=0.03)


def test_a_wrong_password_and_a_certificate_of_strangers_are_refused(
    starting: dict[str, Future[BrokerServer]],
) -> None:
    with warnings.catch_warnings():
        # aiokafka leaves a connection that it could not authenticate to the garbage collector, which complains.
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(knock(starting["rabbitmq"].result().url, starting["kafka"].result().url))
        gc.collect()


async def knock(rabbitmq: str, kafka: str) -> None:
    for url in (rabbitmq, kafka, kafka.replace("SCRAM-SHA-512", "PLAIN")):
        broker = open_adapter("broker", url, AdapterContext())
        await broker.ping()
        await broker.close()
        wrong = url.replace(":mainspring@", ":guessed@")
        untrusted = re.sub(r"ssl_ca_certs=[^&]*", "", url)
        for changed, why in ((wrong, "(?i)auth|login|refused"), (untrusted, "(?i)certificate|ssl|connect")):
            broker = open_adapter("broker", changed, AdapterContext())
            with pytest.raises(BrokerUnavailable, match=why) as refused:
                await broker.ping()
            assert "guessed" not in str(refused.value)
            await broker.close()
