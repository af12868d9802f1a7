"""The ids of rows of outboxes that were sent directly name the message and the installation."""

from __future__ import annotations

import re

import pytest

from orchestration.outbox.direct_ids import direct_id_pattern, direct_suffix
from orchestration.settings import load_settings


@pytest.mark.parametrize("message", ["outbox:shop/7", "outbox:shop/a#direct.00000000.1f/b", "outbox:shop/", "outbox:shop/a\nb"])
def test_an_id_names_its_message_and_is_known_by_its_installation_only(message: str) -> None:
    ours, other = load_settings(), load_settings(instance="other")
    delivery = message + direct_suffix(ours, 1_750_000_000_000_000)
    found = re.match(direct_id_pattern(ours), delivery)
    assert found is not None
    assert found.group(1) == message
    assert re.match(direct_id_pattern(other), delivery) is None
    assert re.match(direct_id_pattern(ours), f"{message}#0123456789ab") is None
