"""Serve calibrated vectors over HTTP; requests that wait share a forward pass.

    python examples/serve.py pipeline.joblib --port 8000
    curl -d '{"texts": ["How do I top up?"]}' localhost:8000

`pipeline.joblib` is what `skcalib calibrate` writes. Load such a file only from people you
trust: unpickling runs code.
"""

import argparse
import json
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Thread

import joblib

MOST_BYTES = 2**20  # of a request


class Batcher(Thread):
    """Transforms what has come in while the last batch ran, all at once.

    Nothing waits for company: a request that comes alone goes alone.
    """

    def __init__(self, pipeline, most_texts=256):
        super().__init__(daemon=True)
        self.pipeline, self.most_texts = pipeline, most_texts
        self.requests = Queue()

    def transform(self, texts):
        """Return the vectors of a request's texts, as lists of floats."""
        answer = Future()
        self.requests.put((texts, answer))
        return answer.result()

    def run(self):
        while True:
            batch = [self.requests.get()]
            while not self.requests.empty() and sum(len(t) for t, _ in batch) < self.most_texts:
                batch.append(self.requests.get())
            try:
                vectors = self.pipeline.transform(
                    [text for texts, _ in batch for text in texts]
                )
            except Exception as error:
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            for texts, answer in batch:
                answer.set_result(vectors[: len(texts)].tolist())
                vectors = vectors[len(texts) :]


def serve(pipeline, port, most_texts=256):
    """Return a server of a fitted pipeline; ``serve_forever()`` starts it."""
    pipeline.transform(["warm up"])  # loads the model before the first client waits for it
    batcher = Batcher(pipeline, most_texts)
    batcher.start()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # a client keeps its connection
        disable_nagle_algorithm = True

        def do_POST(self):
            body = self.rfile.read(min(int(self.headers["Content-Length"] or 0), MOST_BYTES))
            try:
                texts = json.loads(body)["texts"]
                if not (texts and all(isinstance(text, str) for text in texts)):
                    raise ValueError
            except (ValueError, KeyError, TypeError):
                self.close_connection = True
                self.answer(400, {"error": 'send {"texts": ["...", ...]}, 1 MiB at most'})
            else:
                try:
                    self.answer(200, {"vectors": batcher.transform(texts)})
                except ValueError as error:  # of a text that the pipeline refuses
                    self.answer(500, {"error": str(error)})

        def answer(self, status, content):
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", help="file written by joblib")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    server = serve(joblib.load(options.pipeline), options.port)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
