#!/usr/bin/env python3
"""Prints the events that Fairgate sends to http://127.0.0.1:PORT/, if they are signed with FAIRGATE_WEBHOOK_SECRET."""
import hashlib
import hmac
import http.server
import json
import os
import sys
import time

SECRET = os.environ["FAIRGATE_WEBHOOK_SECRET"].encode()
seen = set()


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        timestamp = self.headers.get("x-fairgate-timestamp", "0")
        signature = hmac.new(SECRET, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
        is_signed = hmac.compare_digest("sha256=" + signature, self.headers.get("x-fairgate-signature", ""))
        is_recent = timestamp.isdigit() and abs(time.time() - int(timestamp)) < 300
        if not (is_signed and is_recent):
            self.send_response(401)
        else:
            event = json.loads(body)
            if event["id"] not in seen:  # an event may come twice
                seen.add(event["id"])
                print(event["type"], event.get("task") or event.get("percent", ""), flush=True)
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver)
print("listening on port", server.server_port, flush=True)
server.serve_forever()
