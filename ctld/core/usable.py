"""Whether a node may get new work, as far as the state knows (reachability is known only to those who hold
links)."""

from __future__ import annotations

from ctld.core.cluster import Node, Settings


def usable(settings: Settings, node: Node) -> bool:
    """Tell whether a node's registration and administrative state allow new jobs."""
    if node.down or node.drain or node.fail or node.invalid or node.spec.state == "FUTURE":
        return False
    return node.facts is not None or not settings.require_registration
