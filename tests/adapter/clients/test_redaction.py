"""Secrets that a server repeats in its errors, in the forms in which it got them and in others."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.clients.redaction import redacted

SECRET = 'cl1ent-s3cret/+ü"\\ %2f=='

FORMS = {
    "plain": str,
    "quote": urllib.parse.quote,
    "quote all": lambda text: urllib.parse.quote(text, safe=""),
    "quote_plus": urllib.parse.quote_plus,
    "lower case": lambda text: re.sub(
        "%..", lambda match: match[0].lower(), urllib.parse.quote_plus(text)
    ),
    "twice": lambda text: urllib.parse.quote(urllib.parse.quote_plus(text), safe=""),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON without escapes": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 without padding": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 in a URL": lambda text: urllib.parse.quote_plus(
        base64.b64encode(text.encode()).decode()
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_is_hidden(form):
    text = redacted(f"refused: {form(SECRET)} is wrong", [SECRET])

    assert text == "refused: ... is wrong"


@pytest.mark.parametrize("client", ["a", "ab", "abc", "adapter 1"])
@pytest.mark.parametrize("quoted", [str, urllib.parse.quote_plus], ids=["plain", "quoted"])
@pytest.mark.parametrize("stripped", ["", "="], ids=["padded", "not padded"])
def test_the_secret_is_hidden_in_basic_credentials(client, quoted, stripped):
    pair = f"{quoted(client)}:{quoted(SECRET)}".encode()
    sent = base64.b64encode(pair).decode().rstrip(stripped)

    text = redacted(f"Basic {sent} is wrong", [SECRET])

    assert "..." in text
    # What is left of the base64 form has at most the ends of the secret, in a few bits.
    left = text.removeprefix("Basic ").removesuffix(" is wrong").replace("...", "")
    assert len(left) <= len(base64.b64encode(f"{quoted(client)}:".encode())) + 6


@given(st.text(min_size=6, max_size=40), st.text(max_size=20), st.sampled_from(sorted(FORMS)))
def test_no_secret_is_left(secret, around, form):
    try:
        shown = FORMS[form](secret)
    except UnicodeEncodeError:
        return

    assert shown not in redacted(f"{around}<{shown}>{around}", [secret]).replace("...", "")


def test_other_texts_and_empty_secrets_change_nothing():
    assert redacted("401 Unauthorized: no token", ["", SECRET]) == "401 Unauthorized: no token"
