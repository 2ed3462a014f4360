"""Messages between the controller and its workers."""

from __future__ import annotations

import execnet
import pytest

from pytest_mlms.distribute import messages
from pytest_mlms.distribute.messages import MESSAGES, ItemRefusal, ItemRetry


def test_every_message_is_public_and_has_a_description() -> None:
    for name, kind in MESSAGES.items():
        assert getattr(messages, name) is kind
        assert not name.startswith("_")
        assert kind.__doc__


@pytest.mark.parametrize(
    "message", [ItemRefusal(3, "no GPU", "skip"), ItemRetry(1, 2, "gw0 was lost")]
)
def test_execnet_transfers_the_fields_of_a_message(message: tuple[object, ...]) -> None:
    fields = tuple(message)
    assert execnet.loads(execnet.dumps(fields)) == fields
