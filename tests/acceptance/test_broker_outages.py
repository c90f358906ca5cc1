"""Real processes that a real RabbitMQ, Kafka or SQS delivers to, through trouble.

Workers die; the server is paused, killed, emptied, slowed and fed with nonsense. No run is lost, none is done twice,
and the history checker has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from broker_server import BrokerServer, KafkaServer, RabbitMqServer, SqsServer
from brokered import Cluster, run_through, wait, wait_for_events, wait_for_load

from mainspring.testing.servers.proxy import Proxy

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module", params=[RabbitMqServer, KafkaServer, SqsServer], ids=lambda kind: str(kind.name))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    """A server of this module's own."""
    server: BrokerServer = request.param(tmp_path_factory.mktemp(request.param.name))
    server.start()
    yield server
    server.stop()


def test_workers_die_messages_are_forged_and_queues_are_deleted(tmp_path: Path, server: BrokerServer) -> None:
    def trouble(cluster: Cluster) -> None:
        server.forge(50)
        server.poison(b"not a notice")
        server.poison(b'{"run_id": 1}')
        for number in (1, 2):
            cluster.processes[number].kill()
            cluster.processes[number].wait(20)
            cluster.processes[number] = cluster.start("worker")
        wait(lambda: server.dead_letters() == 2)
        server.empty()
        wait_for_load(cluster, 50)

    run_through(tmp_path, server.url, trouble)


def test_a_broker_that_is_paused_then_killed_and_started_again(tmp_path: Path, server: BrokerServer) -> None:
    def trouble(cluster: Cluster) -> None:
        wait_for_load(cluster, 100)  # Workers may still be joining a group.
        server.pause()
        wait_for_events(cluster, "broker.lost")
        wait_for_load(cluster, 20)
        server.resume()
        wait_for_events(cluster, "broker.back")
        server.kill()
        wait_for_events(cluster, "broker.lost", 2)
        server.start()
        wait_for_events(cluster, "broker.back", 2)
        wait_for_load(cluster, 20)

    run_through(tmp_path, server.url, trouble)


def test_a_wire_that_is_slow_for_a_while(tmp_path: Path, server: BrokerServer) -> None:
    if isinstance(server, KafkaServer):
        pytest.skip("Kafka's clients connect to the addresses that its brokers name, past a proxy")
    proxy = Proxy(server.port, Random(7))
    proxy.start()

    def trouble(cluster: Cluster) -> None:
        proxy.delay_s = 2.0
        wait_for_events(cluster, "broker.lost")
        wait_for_load(cluster, 30)
        proxy.delay_s = 0.0
        wait_for_events(cluster, "broker.back")

    try:
        run_through(tmp_path, server.url.replace(f":{server.port}", f":{proxy.port}"), trouble)
    finally:
        proxy.close()
