"""Credentials of requests: headers of a front proxy, and tokens that a fake API server knows."""

from __future__ import annotations

from adapter import errors
from adapter.server.auth.trust import RequestHeaderConfig
from adapter.server.auth.user import User

PROXY_NAME = "front-proxy-client"
HEADERS = RequestHeaderConfig(
    allowed_names=(PROXY_NAME,),
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)
CAROL = {"X-Remote-User": "carol", "X-Remote-Group": "staff", "X-Remote-Uid": "u-1"}
CAROL_USER = User(name="carol", groups=("staff", "system:authenticated"), uid="u-1")
TOM = User(name="tom", groups=("system:authenticated",))
GOOD, BAD = {"Authorization": "Bearer good"}, {"Authorization": "Bearer bad"}


class FakeTokenReviews:
    """Authenticates the token `good` as the user tom."""

    async def user(self, token):
        if token == "good":
            return TOM
        raise errors.Unauthenticated("bearer token rejected by TokenReview")
