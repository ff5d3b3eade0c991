"""llama.cpp's own HTTP server, with a model of random weights. Says where it listens, and serves until it is ended."""

import sys
import time

import tiny_model
import xllamacpp

path, port, slots = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
tiny_model.write(path)
params = xllamacpp.CommonParams()
params.model.path = path
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_parallel = slots
params.n_ctx = slots * 8192
params.cpuparams.n_threads = 1
params.endpoint_metrics = True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
while True:
    time.sleep(3600)
