"""Dynamo's offline replay (`ai-dynamo-runtime` on PyPI, Rust inside) on the lengths, rate and cap of this folder's README.

    pip install --no-deps ai-dynamo-runtime && pip install typing_extensions
    python dynamo_replay.py [REQUESTS] [WORKERS] [RATE]

RATE is a second and worker.
"""

import resource
import sys
import time

from dynamo._core import run_mocker_synthetic_trace_replay as replay

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
workers = int(sys.argv[2]) if len(sys.argv) > 2 else 1
rate = int(sys.argv[3]) if len(sys.argv) > 3 else 1
engine = {"engine": {"max_num_seqs": 32, "block_size": 16, "num_gpu_blocks": 8_000, "enable_prefix_caching": False}}
start, busy = time.perf_counter(), time.process_time()
replay(
    1147,
    211,
    requests,
    extra_engine_args=engine,
    request_rate=float(rate * workers),
    num_workers=workers,
    capture_per_request=False,
)
wall, busy = time.perf_counter() - start, time.process_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(f"dynamo, {workers} workers, {rate}/s each: {requests} requests, {wall:.2f} s, {busy:.2f} s of CPU, "
      f"{requests / busy:.0f} requests/s of CPU, peak {peak:.0f} MiB")
