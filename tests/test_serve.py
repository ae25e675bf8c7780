"""The example of a server: requests that wait share a pass, and bad ones are told."""

import importlib.util
import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from waiting import wait_until

# Straight to the server, whatever proxy the environment names.
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Pipeline:
    """Counts characters, and is as slow as a test wants."""

    def __init__(self):
        self.batches, self.go = [], Event()
        self.go.set()

    def transform(self, texts):
        self.batches.append(list(texts))
        assert self.go.wait(timeout=300)
        if "bad" in texts:
            raise ValueError("a bad text")
        return np.array([[len(text), 1.0] for text in texts])


@pytest.fixture(scope="module")
def example():
    path = Path(__file__).parents[1] / "examples" / "serve.py"
    spec = importlib.util.spec_from_file_location("serve", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def pipeline():
    return Pipeline()


@pytest.fixture
def waiting(example, monkeypatch):
    """The queue of requests that wait for a pass."""
    queue = example.Queue()
    monkeypatch.setattr(example, "Queue", lambda: queue)
    return queue


@pytest.fixture
def ask(example, waiting, pipeline):
    server = example.serve(pipeline, 0)
    thread = Thread(target=server.serve_forever)
    thread.start()

    def post(body):
        url = f"http://127.0.0.1:{server.server_port}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with opener.open(url, data, timeout=300) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    yield post
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_request_gets_the_vectors_of_its_texts(ask):
    assert ask({"texts": ["a", "bcd"]}) == (200, {"vectors": [[1.0, 1.0], [3.0, 1.0]]})


def test_requests_that_wait_share_a_pass(ask, pipeline, waiting):
    del pipeline.batches[:]  # the one that warmed up
    pipeline.go.clear()
    with ThreadPoolExecutor(8) as clients:
        first = clients.submit(ask, {"texts": ["first"]})
        wait_until(lambda: pipeline.batches)
        others = [clients.submit(ask, {"texts": ["x" * n]}) for n in range(2, 8)]
        wait_until(lambda: waiting.qsize() == len(others))
        pipeline.go.set()
        assert first.result() == (200, {"vectors": [[5.0, 1.0]]})
        for n, other in enumerate(others, 2):
            assert other.result() == (200, {"vectors": [[n, 1.0]]})
    assert [len(batch) for batch in pipeline.batches] == [1, len(others)]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", {"texts": []}, {"texts": [1]}, {"text": "a"}]
)
def test_a_bad_request_is_told_what_to_send(ask, body):
    status, content = ask(body)
    assert status == 400
    assert "send" in content["error"]


def test_an_error_of_the_pipeline_reaches_the_client(ask):
    assert ask({"texts": ["bad"]}) == (500, {"error": "a bad text"})
    assert ask({"texts": ["good"]})[0] == 200
