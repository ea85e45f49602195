import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from collapselab import hub


@pytest.fixture
def address() -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(503)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_hub_that_answers_anything_at_all_is_there(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "not an address")
    assert not hub.hub_answers()
    monkeypatch.setattr(constants, "ENDPOINT", address)
    assert hub.hub_answers()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert not hub.hub_answers()


def test_a_hub_that_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "HUB_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        assert not hub.hub_answers()
        assert time.monotonic() - start < 2


def test_a_name_that_is_looked_up_for_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def look_up(*_: Any, **__: Any) -> Any:
        released.wait(30)
        raise OSError("no name server")

    monkeypatch.setattr(hub, "HUB_SECONDS", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(constants, "ENDPOINT", "http://hub.invalid")
    start = time.monotonic()
    assert not hub.hub_answers()
    assert time.monotonic() - start < 2
    released.set()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gpt2", ("gpt2", None)), ("owner/model", ("owner/model", None)), ("owner/model@v1", ("owner/model", "v1")),
        ("a/b/c", None), ("owner/model@", None), ("../x", None), ("", None), ("a b", None),
    ],
)  # fmt: skip
def test_what_can_be_a_name_on_the_hub(name: str, found: tuple[str, str | None] | None) -> None:
    assert hub.hub_id(name) == found


def test_the_command_that_fetches_names_the_revision() -> None:
    assert hub.download_command("a/b") == "hf download a/b --local-dir DIR"
    assert hub.download_command("a/b", "v1") == "hf download a/b --revision v1 --local-dir DIR"


@pytest.mark.parametrize("identity", ["owner/model", "a--b", "x" * 200])
def test_what_was_never_fetched_is_not_in_the_cache(
    identity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert hub.cached_folder(identity, "v1") is None
