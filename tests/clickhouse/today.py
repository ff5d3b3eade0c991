"""Today's ClickHouse behind its HTTP interface, as far as the export uses it: chdb-core is ClickHouse as a library.

Usage: today.py FOLDER PORT. Statements run one after the other. Settings in the URL are set before the statement.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from chdb import session

NOT_SETTINGS = {"database", "query", "wait_end_of_query"}
LOCK = Lock()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        try:
            with LOCK:
                self.answer(200, run(query, body))
        except Exception as error:  # What chdb raises has no type of its own.
            self.answer(500, str(error))

    def answer(self, status, text):
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def run(query, body):
    if "database" in query:
        SESSION.query(f"USE {query['database']}")
    for name in set(query) - NOT_SETTINGS:
        SESSION.query(f"SET {name} = {query[name]}")
    statement = f"{query['query']}\n{body}" if "query" in query else body
    return str(SESSION.query(statement, "TabSeparated"))


SESSION = session.Session(sys.argv[1])
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
