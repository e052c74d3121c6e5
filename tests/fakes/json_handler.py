"""What the fake servers share: JSON in, JSON out, nothing on stderr. Standard library only."""
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JsonHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    known = {}  # what GET answers, by path

    def request_body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def reply(self, status, body, **headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(200 if self.path in self.known else 404, self.known.get(self.path, {}))

    def log_message(self, *_):
        pass


def serve(port, handler):
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    print("listening", flush=True)
    server.serve_forever()
