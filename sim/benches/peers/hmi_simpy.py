"""HMI's fine pipeline in SimPy, the general-purpose way: the scenario of `HMI` in `sim/benches/common/mod.rs` with medians for prices.

    pip install simpy
    python hmi_simpy.py [REQUESTS]

Requests of 10,000 tenants come at 3,800/s; batches of at most 64 start when their turn comes, two at a time. A batch is looked up, copied to
the card, and then each of six layers computes once that layer's adapters of the tenants that are not there have been copied.
"""

import random
import resource
import sys
import time
from collections import OrderedDict, deque

import simpy

REQUESTS = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
TENANTS, RATE, TOKENS, LAYERS, MAX_BATCH, DEPTH = 10_000, 3_800.0, 32, 6, 64, 2
ADAPTER_LAYER_BYTES, SLOTS = 4 * (2 * 768 * 16 + 768 + 16), 1_200

random.seed(7)
env = simpy.Environment()
lookup, copy, compute = (simpy.Resource(env) for _ in range(3))
waiting, resident = deque(), OrderedDict()
running, latencies = 0, []
batches = 0


def use(lane, seconds):
    with lane.request() as turn:
        yield turn
        yield env.timeout(seconds * random.uniform(0.95, 1.1))


def advance():
    global running, batches
    while waiting and running < DEPTH:
        members = [waiting.popleft() for _ in range(min(MAX_BATCH, len(waiting)))]
        running += 1
        batches += 1
        env.process(serve(members))


def layer(copied, requests, tenants):
    yield copied
    work = requests * TOKENS
    yield from use(compute, 1e-6 * (200 + work + 15 + requests + 0.0002 * 16 * work))


def serve(members):
    global running
    missing = 0
    for _, tenant in members:
        if tenant in resident:
            resident.move_to_end(tenant)
        else:
            missing += 1
            resident[tenant] = None
            if len(resident) > SLOTS:
                resident.popitem(last=False)
    requests = len(members)
    copies = [
        env.process(use(copy, missing * (20e-6 + ADAPTER_LAYER_BYTES / 10e9)))
        for _ in range(LAYERS)
    ]
    yield from use(lookup, 1e-6 * (2 + 0.5 * requests * TOKENS))
    yield from use(copy, 20e-6 + requests * TOKENS * 768 * 4 / 10e9)
    for copied in copies:
        yield from layer(copied, requests, len(members))
    latencies.extend(env.now - arrival for arrival, _ in members)
    running -= 1
    advance()


def arrivals():
    for _ in range(REQUESTS):
        yield env.timeout(random.expovariate(RATE))
        waiting.append((env.now, random.randrange(TENANTS)))
        advance()


env.process(arrivals())
busy = time.process_time()
env.run()
busy = time.process_time() - busy
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
assert len(latencies) == REQUESTS
print(f"simpy: {REQUESTS} requests in {batches} batches, {busy:.2f} s of CPU, {REQUESTS / busy:.0f} requests/s, "
      f"mean {1e3 * sum(latencies) / REQUESTS:.2f} ms, peak {peak:.0f} MiB")
