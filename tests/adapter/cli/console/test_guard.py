"""Who gets a page: requests with the token, and none that another page causes."""

from __future__ import annotations

import asyncio

import pytest

LIST = "/apis/autoscaling/v2/horizontalpodautoscalers"
NOBODY = {"Authorization": ""}


async def test_the_first_address_sets_a_cookie_and_leads_to_the_same_one_without_token(
    world, start
):
    client = await start(world)
    address = f"/autoscalers?search=a%20b&{client.guard.query}"

    first = await client.get(address, headers=NOBODY, allow_redirects=False)

    assert first.status == 303
    assert first.headers["Location"] == "/autoscalers?search=a+b"
    (cookie,) = first.cookies.values()
    assert cookie["httponly"]
    assert cookie["samesite"] == "Strict"
    assert cookie["path"] == "/"
    assert (await client.get("/autoscalers", headers=NOBODY)).status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer \u00e4".encode().decode("latin-1")},
        {"Cookie": "console=x"},
    ],
)
async def test_without_the_token_nothing_is_shown_or_requested(world, start, headers):
    world.healthy()
    client = await start(world)

    for address in ("/", "/autoscalers", "/doctor.json", "/static/console.js", "/?token=x"):
        response = await client.get(address, headers=NOBODY | headers, allow_redirects=False)
        assert response.status == 401
        assert "Authorization: Bearer TOKEN" in await response.text()
    assert set(world.requests) <= {LIST}  # the watch


async def test_a_token_that_is_not_utf_8_is_refused(world, start):
    client = await start(world)
    reader, writer = await asyncio.open_connection(client.server.host, client.server.port)

    writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \xff\r\n\r\n")

    assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:80", "[::"])
async def test_a_foreign_host_is_refused_also_with_the_token(world, start, host):
    client = await start(world)

    response = await client.get(f"/autoscalers?{client.guard.query}", headers={"Host": host})

    assert response.status == 421
    assert "Set-Cookie" not in response.headers


@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:99"])
async def test_other_ports_of_this_computer_are_served_for_port_forward(world, start, host):
    client = await start(world)

    assert (await client.get("/autoscalers", headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},  # another port of this computer
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "null"},
    ],
)
async def test_a_request_caused_by_another_page_is_refused_and_triggers_nothing(
    world, start, headers
):
    world.healthy()
    client = await start(world)

    for address in ("/autoscalers", "/autoscalers/default/gpu-hpa", "/doctor"):
        response = await client.get(address, headers=headers)
        assert response.status == 403
        assert "gpu-hpa" not in await response.text()
    assert set(world.requests) <= {LIST}  # the watch


async def test_other_methods_are_refused(world, start):
    client = await start(world)

    for method in ("POST", "PUT", "DELETE"):
        assert (await client.request(method, "/autoscalers")).status == 405
