"""The example of a server: requests that wait share a pass, and bad ones harm nobody."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from threading import Barrier, Event, Thread

import numpy as np
import pytest
import uvicorn
from loading import load
from sklearn.pipeline import make_pipeline
from waiting import wait_until

from skcalib import BertEncoder, Whitening

example = load("examples/serve.py")
GOOD = {"texts": ["a", "bcd"]}
VECTORS = {"vectors": [[1.0, 1.0], [3.0, 1.0]]}


class Pipeline:
    """Counts characters, and is as slow as a test wants."""

    def __init__(self):
        self.batches, self.go = [], Event()
        self.go.set()

    def transform(self, texts):
        self.batches.append(list(texts))
        assert self.go.wait(timeout=300)
        if "bad" in texts:
            raise OSError("a fault of the encoder, which no client may read")
        return np.array([[len(text), 1.0] for text in texts])


@contextmanager
def served(pipeline, **limits):
    """Yield a function that posts a body to a running server; it returns status and answer."""
    app = example.application(pipeline, **limits)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)

    def post(body, seconds=300, what=("POST", "/vectors"), **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers = {"Content-Type": "application/json", **headers}
        address = server.servers[0].sockets[0].getsockname()
        with closing(HTTPConnection(*address, timeout=seconds)) as connection:
            connection.request(*what, data, headers)
            with connection.getresponse() as response:
                content = response.read()
        return response.status, json.loads(content) if content[:1] == b"{" else content

    yield post
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def post():
    with served(Pipeline(), most_bytes=100_000) as post:
        yield post


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (422, {"texts": "abc"}, {}),
        (422, {"texts": []}, {}),
        (422, b"", {}),
        (422, b'{"texts": [NaN]}', {}),
        (422, b'{"texts": ["\\ud800"]}', {}),
        (422, {"texts": ["x" * 10_001]}, {}),
        (422, {"texts": ["x"] * 257}, {}),
        (400, b"[" * 50_000, {}),
        (400, b'{"texts": ["\xff"]}', {}),
        (413, {"texts": ["x" * 9_000] * 12}, {}),
        (413, b"20000\r\n" + b"x" * 2**17 + b"\r\n0\r\n\r\n", {"Transfer_Encoding": "chunked"}),
        (500, {"texts": ["bad"]}, {}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_request_that_cannot_be_served_leaves_the_next_alone(post, status, body, headers):
    answered, answer = post(body, **headers)
    assert answered == status
    assert b"fault of the encoder" not in str(answer).encode()
    assert post(GOOD) == (200, VECTORS)


def test_a_client_that_waits_too_long_is_told():
    pipeline = Pipeline()
    with served(pipeline, seconds=0.5) as post:
        pipeline.go.clear()
        assert post(GOOD) == (503, {"detail": "no answer within 0.5 s"})
        pipeline.go.set()
        wait_until(lambda: post(GOOD) == (200, VECTORS))


def test_clients_at_once_each_get_the_vectors_of_their_texts(tiny_bert, words):
    texts = [f"{first} {second}" for first in words[:10] for second in words[10:16]]
    pipeline = make_pipeline(BertEncoder(tiny_bert), Whitening(power="auto")).fit(texts)
    expected, together = pipeline.transform(texts), Barrier(20)

    def ask(i):
        together.wait(timeout=300)
        return [post({"texts": texts[3 * i : 3 * i + 3]}) for _ in range(3)]

    with served(pipeline) as post, ThreadPoolExecutor(20) as clients:
        for i, answers in enumerate(clients.map(ask, range(20))):
            for status, answer in answers:
                assert status == 200
                np.testing.assert_allclose(
                    answer["vectors"], expected[3 * i : 3 * i + 3], atol=1e-4
                )


def answers(pipeline, requests, most_texts=256, given_up=()):
    """Return what each request gets, vectors or error, where all wait from the start."""

    async def run():
        queue = asyncio.Queue()
        waiting = [example.Request(texts, asyncio.Future()) for texts in requests]
        for i, request in enumerate(waiting):
            queue.put_nowait(request)
            if i in given_up:
                request.vectors.cancel()
        passes = asyncio.create_task(example.run_passes(pipeline, queue, most_texts))
        everyone = asyncio.gather(*(r.vectors for r in waiting), return_exceptions=True)
        got = await asyncio.wait_for(everyone, timeout=300)
        passes.cancel()
        return got

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("most_texts", "batches"),
    [
        (1, [["a", "b"], ["c"], ["d"]]),
        (3, [["a", "b", "c"], ["d"]]),
        (256, [["a", "b", "c", "d"]]),
    ],
)
def test_requests_that_wait_share_a_pass(most_texts, batches):
    pipeline = Pipeline()
    got = answers(pipeline, [["a", "b"], ["c"], ["d"]], most_texts)
    assert got == [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0]], [[1.0, 1.0]]]
    assert pipeline.batches == batches


def test_an_error_is_that_of_its_request_alone():
    first, fault, last = answers(Pipeline(), [["a"], ["bad"], ["bcd"]])
    assert (first, last) == ([[1.0, 1.0]], [[3.0, 1.0]])
    assert isinstance(fault, OSError)


@pytest.mark.parametrize("given_up", [{0}, {0, 1}])
def test_requests_that_were_given_up_are_not_encoded(given_up):
    pipeline = Pipeline()
    got = answers(pipeline, [["a"], ["b"], ["c"]], most_texts=2, given_up=given_up)
    assert got[2] == [[1.0, 1.0]]
    assert not {"ab"[i] for i in given_up} & {t for batch in pipeline.batches for t in batch}


def test_what_may_wait_is_bounded():
    pipeline = Pipeline()
    with served(pipeline, most_waiting=3) as post, ThreadPoolExecutor(1) as first:
        assert post(b"", what=("GET", "/health")) == (200, {"waiting": 0})
        pipeline.go.clear()
        busy = first.submit(post, GOOD)
        wait_until(lambda: GOOD["texts"] in pipeline.batches)
        assert post(GOOD) == (503, {"detail": "too many texts are waiting"})
        pipeline.go.set()
        assert busy.result() == post(GOOD) == (200, VECTORS)
