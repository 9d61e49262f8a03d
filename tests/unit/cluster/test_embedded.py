"""A rendezvous that runs in a node while nobody else is at its address."""

import pytest

from hopline.cluster.embedded import Embedded
from hopline.errors import InputError
from tests.cluster.world import play


def test_the_first_is_it_and_the_next_when_it_has_ended():
    async def test(cluster):
        one, two = (Embedded(lambda: cluster._embedded("x", "tcp://here:8011")) for _ in range(2))  # noqa: SLF001
        await one.start()
        await two.start()
        assert one.rendezvous is not None
        assert one.rendezvous.is_leader
        assert two.rendezvous is None
        running = one.rendezvous
        await one.start()
        assert one.rendezvous is running
        await one.close()
        await one.close()
        assert one.rendezvous is None
        await two.start()
        assert two.rendezvous is not None
        await two.close()

    play(test)


def test_a_mistake_in_the_settings_is_said():
    def make():
        raise InputError("INPUT_BAD_CONFIG", "no good")

    async def test(cluster):
        embedded = Embedded(make)
        with pytest.raises(InputError):
            await embedded.start()
        assert embedded.rendezvous is None

    play(test)
