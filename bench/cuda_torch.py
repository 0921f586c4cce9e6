#!/usr/bin/env python3
# What PyTorch takes for the work of bench/cuda_bench, in graphs and over data larger than the L2 cache, as a Markdown table.
from __future__ import annotations

import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

LAYERS, HEADS, DIM = 32, 8, 128


def measure(body, warm: int = 3, timed: int = 20) -> tuple[float, float, float]:
    """Median, minimum and maximum in µs of a graph of `body`."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        body()
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    for _ in range(warm):
        graph.replay()
    times = []
    for _ in range(timed):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        graph.replay()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) * 1000)
    return statistics.median(times), min(times), max(times)


def report(name: str, body, parts: int = 1) -> None:
    try:
        median, least, most = (t / parts for t in measure(body))
        print(f"| {name} | {median:.2f} ({least:.2f}–{most:.2f}) |", flush=True)
    except RuntimeError as error:  # a backend that refuses a shape is a line of the table
        print(f"| {name} | {str(error).splitlines()[0][:80]} |", flush=True)
        torch.cuda.synchronize()


def main() -> int:
    if not torch.cuda.is_available():
        print("cuda_torch: no GPU", file=sys.stderr)
        return 1
    torch.manual_seed(1)
    print("| PyTorch " + torch.__version__ + " | µs: median (minimum–maximum) |\n|---|---:|")
    half = {"device": "cuda", "dtype": torch.float16}
    heads, n = LAYERS * HEADS, 32768
    keys = torch.randn(heads, n, DIM, **half)
    filters = torch.randn(heads, DIM, 1, **half)
    report("score: dots by bmm, 256 heads x 32k", lambda: torch.bmm(keys, filters))
    report("score: norms, 256 heads x 32k", lambda: keys.norm(dim=-1))
    scores = torch.randn(heads, n, device="cuda")
    for kept in (2048, 512):
        report(
            f"select: topk + sort, 256 heads x 32k → {kept}",
            lambda k=kept: scores.topk(k, dim=-1, sorted=False).indices.sort(dim=-1),
        )
        report(
            f"select: topk + sort, 8 heads x 32k → {kept}",
            lambda k=kept: scores[:HEADS].topk(k, dim=-1, sorted=False).indices.sort(dim=-1),
        )
        slots = scores.topk(kept, dim=-1).indices.sort(dim=-1).values
        index = slots.unsqueeze(-1).expand(-1, -1, DIM)
        values = keys  # another tensor would be read just the same
        report(
            f"compact: gather of K and V, 256 heads, 32k → {kept}",
            lambda i=index: (keys.gather(1, i), values.gather(1, i)),
        )
    del keys, values, scores

    # Decoding: layers take turns, so that no cache stays in L2.
    for dim, kv_heads, group in ((128, 8, 4), (128, 2, 6), (64, 2, 7)):
        for rows in (512, 2048, 4096, 32768):
            layers = min(max(int(400e6 // (rows * kv_heads * dim * 4)), 4), 64)
            k = torch.randn(layers, 1, kv_heads, rows, dim, **half)
            v = torch.randn(layers, 1, kv_heads, rows, dim, **half)
            q = torch.randn(layers, 1, kv_heads * group, 1, dim, **half)
            for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):

                def attend(k=k, v=v, q=q, layers=layers, backend=backend):
                    with sdpa_kernel(backend):
                        for layer in range(layers):
                            F.scaled_dot_product_attention(q[layer], k[layer], v[layer], enable_gqa=True)

                report(f"decode {dim} x {kv_heads}, group {group}, {rows} rows, SDPA {name}", attend, layers)
            del k, v, q
    return 0


if __name__ == "__main__":
    sys.exit(main())
