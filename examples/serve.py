"""Serve calibrated vectors over HTTP; waiting requests share a forward pass.

    python examples/serve.py pipeline.joblib --port 8000
    curl --json '{"texts": ["How do I top up?"]}' localhost:8000/vectors
    curl localhost:8000/health

`skcalib compare MODEL TEXTS --save pipeline.joblib` writes such a file. Load it only from
people you trust, because unpickling runs code.
"""

import argparse
import asyncio
from contextlib import asynccontextmanager
from typing import Annotated, NamedTuple

import joblib
import numpy as np
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

Text = Annotated[str, Field(max_length=10_000)]


class Texts(BaseModel):
    """The texts that a client sends."""

    texts: list[Text] = Field(min_length=1, max_length=256)


class Vectors(BaseModel):
    """The vectors that it receives, one per text."""

    vectors: list[list[float]]


class Request(NamedTuple):
    """Texts that wait for a pass, and the future that will hold their vectors."""

    texts: list[str]
    vectors: asyncio.Future


async def run_passes(pipeline, queue, most_texts):
    """Transform all requests together that arrived during the last pass, without delay."""
    while True:
        batch = [await queue.get()]
        while not queue.empty() and sum(len(r.texts) for r in batch) < most_texts:
            batch.append(queue.get_nowait())
        if batch := [request for request in batch if not request.vectors.cancelled()]:
            await run_pass(pipeline, batch)


async def run_pass(pipeline, batch):
    """Give each request its vectors, or the error that its own texts cause."""
    try:
        texts = [text for request in batch for text in request.texts]
        vectors = await asyncio.to_thread(pipeline.transform, texts)
        ends = np.cumsum([len(request.texts) for request in batch])
        parts = [part.tolist() for part in np.split(vectors, ends[:-1])]
    except Exception as error:
        if len(batch) > 1:
            for request in batch:
                await run_pass(pipeline, [request])
        elif not batch[0].vectors.cancelled():
            batch[0].vectors.set_exception(error)
    else:
        for request, part in zip(batch, parts, strict=True):
            if not request.vectors.cancelled():
                request.vectors.set_result(part)


async def cancel_when_gone(http, vectors):
    """Cancel the future of a client that closes its connection: no pass is made for it."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
    vectors.cancel()


def application(pipeline, *, most_texts=256, most_waiting=2048, most_bytes=2**20, seconds=30):
    """Return the application that serves a fitted pipeline.

    A batch is full at `most_texts`. The server refuses a request of more than `most_bytes`, and
    at once one that would wait behind `most_waiting` texts. It abandons one that takes more
    than `seconds`, including the time to send it, or whose client has gone.
    """
    pipeline.transform([""])  # loads the model before the first client waits for it
    queue, n_waiting = asyncio.Queue(), 0

    @asynccontextmanager
    async def lifespan(_):
        passes = asyncio.create_task(run_passes(pipeline, queue, most_texts))
        yield
        passes.cancel()

    app = FastAPI(title="Calibrated vectors", lifespan=lifespan, max_body_size=most_bytes)

    @app.post("/vectors")
    async def vectors(body: Texts, http: HTTPRequest) -> Vectors:
        nonlocal n_waiting
        if n_waiting + len(body.texts) > most_waiting:
            raise HTTPException(503, "too many texts are waiting", {"Retry-After": "1"})
        request = Request(body.texts, asyncio.get_running_loop().create_future())
        gone = asyncio.create_task(cancel_when_gone(http, request.vectors))
        n_waiting += len(body.texts)
        queue.put_nowait(request)
        try:
            return Vectors(vectors=await request.vectors)
        finally:
            n_waiting -= len(body.texts)
            gone.cancel()

    @app.get("/health")
    async def health() -> dict[str, int]:
        return {"waiting": n_waiting}

    @app.middleware("http")
    async def limit_time(request, call_next):
        try:
            async with asyncio.timeout(seconds):
                return await call_next(request)
        except TimeoutError:
            return JSONResponse({"detail": f"no answer within {seconds} s"}, 503)

    @app.exception_handler(RequestValidationError)
    async def refuse(_, error):
        # FastAPI would send the input back, but JSON cannot hold NaN or lone surrogates.
        faults = [{key: fault[key] for key in ("loc", "msg")} for fault in error.errors()]
        return JSONResponse({"detail": faults}, 422)

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", help="fitted pipeline, saved by joblib")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    app = application(joblib.load(options.pipeline))
    uvicorn.run(app, port=options.port, limit_concurrency=1000, access_log=False)
