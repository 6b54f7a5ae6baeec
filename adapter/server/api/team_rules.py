"""Document below each namespace with the state of its teams' rules.

Authorization sees `/apis/custom.metrics.k8s.io/VERSION/namespaces/NS/teamrules` as a list of the
resource `teamrules`, so a Role in the namespace grants it. Discovery does not list the resource:
clients can only read this document.
"""

from __future__ import annotations

from adapter.server.api.groups import custom
from adapter.server.api.groups.backend import Backend, TeamRulesView
from adapter.server.apimachinery import encoding
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import Answer

RESOURCE = "teamrules"


def requested(info: RequestInfo) -> bool:
    """Return whether the path is that of the document of a namespace."""
    return (
        info.group == custom.API.name
        and info.version in custom.API.versions
        and info.verb == "list"
        and info.parts == (RESOURCE,)
        and info.below_version == ("namespaces", info.namespace, RESOURCE)
        and bool(info.namespace)
    )


async def answer(info: RequestInfo, backend: Backend, team_rules: TeamRulesView) -> Answer:
    """Return the document as JSON."""
    document = await team_rules.document(info.namespace, backend.generation)
    return Answer(body=encoding.encode(document, pretty=info.pretty is not False))
