#!/usr/bin/env python3
"""Mixed-adapter batches through Hugging Face Transformers and PEFT, and beside Tenantry's (docs/beside-peft.md).

    beside-peft.py adapters    an encoder's batches, each sequence with its tenant's adapters and head: requests a second, as JSON
    beside-peft.py lora        a decoder's batches, each sequence with its tenant's LoRA: tokens a second, as JSON
    beside-peft.py turns       both sides of both in turns: a table, and beside-peft.json; scripts/beside-peft.sh calls this

The first two need torch, transformers and peft, and nothing else: weights are random.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The program's built-in models of these names (profiles/src/model.rs): layers, hidden, heads, heads of keys and values, intermediate,
# vocabulary, positions.
MODELS = {
    "tiny": (2, 128, 2, 2, 512, 1024, 128),
    "bert-base": (12, 768, 12, 12, 3072, 30522, 512),
    "tiny-llama": (2, 128, 4, 2, 352, 1024, 2048),
    "llama-7b": (32, 4096, 32, 32, 11008, 32000, 4096),
}
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
# As Tenantry's presets have it.
CLASSES = 2

# Where the encoder's LoRA stands: the projection after attention, which is where a tenant's adapter is in Tenantry. Of a rank as large as the
# adapter's bottleneck, it is the same two products on the same tokens, without the adapter's biases and its ReLU.
ENCODER_TARGETS = ["attention.output.dense"]
DECODER_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def main():
    options = arguments()
    if options.part == "turns":
        sys.exit(turns(options))
    # What libraries print is not part of the answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    if options.device == "cpu":
        # Tenantry computes an op on one core.
        import torch

        torch.set_num_threads(1)
    about, measure = PARTS[options.part](options)
    if options.wait:
        tell(answers, about)
        for _ in sys.stdin:
            tell(answers, measure())
    else:
        tell(answers, {**about, **measure()})


def tell(answers, what):
    print(json.dumps(what), file=answers, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="part", required=True)
    for part, model in [("adapters", "bert-base"), ("lora", "llama-7b")]:
        one = commands.add_parser(part)
        one.add_argument("--model", default=model, choices=MODELS)
        one.add_argument("--device", default="cuda:0")
        one.add_argument("--dtype", default="bf16", choices=DTYPES)
        one.add_argument("--batch", type=int, default=32, help="sequences, each of another tenant")
        one.add_argument("--length", type=int, default=128, help="tokens of each input")
        one.add_argument("--measure", type=float, default=5, help="seconds")
        one.add_argument("--wait", action="store_true", help="tell of the model, and then measure once for each line of the input")
        if part == "adapters":
            one.add_argument("--rank", type=int, default=64, help="of the LoRA that stands for adapters with this bottleneck")
        else:
            one.add_argument("--rank", type=int, default=16, help="of the LoRA")
            one.add_argument("--tokens", type=int, default=16, help="to generate for each prompt")
    both = commands.add_parser("turns")
    both.add_argument("--device", default="cuda:0", help="on `cpu` it is rehearsed with tiny models")
    both.add_argument("--tenantry", required=True, help="the program")
    both.add_argument("--out", required=True, type=Path, help="folder")
    both.add_argument("--part", dest="of", choices=["both", *PARTS], default="both")
    both.add_argument("--seconds", type=float, default=240, help="in all; what finds no time is left out, and said to be")
    both.add_argument("--turns", type=int, default=2)
    both.add_argument("--measure", type=float, default=5, help="seconds of each side in each turn")
    return parser.parse_args()


# ---- Transformers and PEFT: each part gives what is to be known of it, and what measures it once ----


def adapters(options):
    import torch
    from transformers import AutoModelForSequenceClassification, BertConfig

    layers, hidden, heads, _, intermediate, vocabulary, positions = MODELS[options.model]
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        vocab_size=vocabulary,
        max_position_embeddings=positions,
        num_labels=CLASSES,
    )
    model = built(AutoModelForSequenceClassification, config, options)
    # For this task PEFT gives each adapter a classifier of its own, as each of Tenantry's tenants has one.
    model, names = with_adapters(model, options, "SEQ_CLS", ENCODER_TARGETS)
    ids = torch.randint(vocabulary, (options.batch, options.length))

    def answer(**of):
        """A batch from the host's ids to the host's answers."""
        return model(input_ids=ids.to(options.device), **of).logits.cpu()

    @torch.inference_mode()
    def measure():
        mixed = rates(lambda: answer(adapter_names=names), options.measure, options.batch)
        with model.disable_adapter():
            alone = rates(answer, options.measure / 5, options.batch)
        return {"requests_per_s": mixed, "requests_per_s_without_adapters": alone}

    with torch.inference_mode():
        check = checked(model, names, lambda rows, **of: model(input_ids=ids[rows].to(options.device), **of).logits)
    # Down- and up-projection with their biases (profiles/src/model.rs, `adapter_parameters_per_layer`).
    ours = 2 * hidden * options.rank + options.rank + hidden
    return {**about(options, model, ENCODER_TARGETS, ours), "check": check}, measure


def lora(options):
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    layers, hidden, heads, kv_heads, intermediate, vocabulary, positions = MODELS[options.model]
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate,
        vocab_size=vocabulary,
        max_position_embeddings=positions,
    )
    model = built(AutoModelForCausalLM, config, options)
    model, names = with_adapters(model, options, "CAUSAL_LM", DECODER_TARGETS)
    ids = torch.randint(vocabulary, (options.batch, options.length))
    ways = {"generate": by_generate, "own loop": by_own_loop}

    with torch.inference_mode():
        check = checked(model, names, lambda rows, **of: last_logits(model, ids[rows].to(options.device), **of))
        # The faster of two ways to decode is measured: the one with the fastest step, since the first steps of all are slow. To find it warms up.
        both = {way: min(generation(decode(model, ids, 5, options, adapter_names=names))["steps_ms"]) for way, decode in ways.items()}
        faster = min(both, key=both.get)
        decode = ways[faster]
        # A whole one before the first counts: kernels of attention may be planned anew for each number of cached tokens.
        decode(model, ids, options.tokens, options, adapter_names=names)

    @torch.inference_mode()
    def measure():
        generations, until = [], time.perf_counter() + options.measure
        while not generations or time.perf_counter() < until:
            generations.append(generation(decode(model, ids, options.tokens, options, adapter_names=names)))
        with model.disable_adapter():
            decode(model, ids, 4, options)
            alone = generation(decode(model, ids, options.tokens, options))
        steps = sorted(step for one in generations for step in one["steps_ms"])
        return {
            "tokens_per_s_decoding": spread(options.batch * 1e3 / one["ms_per_token"] for one in generations),
            "tokens_per_s_with_prompts": spread(options.batch * options.tokens / one["seconds"] for one in generations),
            "tokens_per_s_decoding_without_adapters": spread([options.batch * 1e3 / alone["ms_per_token"]]),
            "first_token_ms": spread(one["first_ms"] for one in generations),
            "step_ms": {"p5": part_of(steps, 0.05), "p50": part_of(steps, 0.5), "p95": part_of(steps, 0.95)},
        }

    more = {"generated_tokens": options.tokens, "decoded_by": faster, "fastest_step_ms_by": both, "check": check}
    # A pair of matrices for each projection (profiles/src/model.rs, `lora_parameters_per_layer`).
    kv_width = hidden // heads * kv_heads
    ours = options.rank * (2 * (hidden + hidden) + 2 * (hidden + kv_width) + 3 * (hidden + intermediate))
    return {**about(options, model, DECODER_TARGETS, ours), **more}, measure


PARTS = {"adapters": adapters, "lora": lora}


def with_adapters(model, options, task, targets):
    """The model with one LoRA a tenant, all on the device, and the tenants' names."""
    import torch
    from peft import LoraConfig, get_peft_model

    # `init_lora_weights=False`: B is random too, so that every tenant's model differs, as Tenantry's do. Adapters in the model's own number
    # format: PEFT would hold those of a model in half precision in single precision, which is for training, and slower.
    config = LoraConfig(task_type=task, r=options.rank, lora_alpha=options.rank, target_modules=targets, init_lora_weights=False)
    names = [f"tenant-{tenant}" for tenant in range(options.batch)]
    with torch.device(options.device):
        model = get_peft_model(model, config, adapter_name=names[0], autocast_adapter_dtype=False)
        for name in names[1:]:
            model.add_adapter(name, config, autocast_adapter_dtype=False)
    return model.to(options.device).eval(), names


def built(auto_class, config, options):
    """A model with random weights, made where it computes: a large one would take minutes on the host."""
    import torch

    torch.manual_seed(7)
    with torch.device(options.device):
        return auto_class.from_config(config, attn_implementation="sdpa", dtype=getattr(torch, DTYPES[options.dtype]))


def checked(model, names, logits):
    """How far the first and the last row of a mixed batch are from what their own adapter gives by itself, and from the backbone's; an error
    where they are not nearer to the first: then adapters were not mixed."""
    rows = [0, len(names) - 1]
    mixed = logits(rows, adapter_names=[names[row] for row in rows]).float()
    with model.disable_adapter():
        backbone = logits(rows).float()
    own = []
    for row in rows:
        model.set_adapter(names[row])
        own.append(logits([row]).float()[0])
    from_own = max((mixed[index] - own[index]).abs().max().item() for index in range(2))
    from_backbone = min((mixed[index] - backbone[index]).abs().max().item() for index in range(2))
    if not from_own < from_backbone:
        raise RuntimeError(f"a mixed batch is {from_own} off each row's own adapter, and {from_backbone} off no adapter at all")
    return {"mixed_from_own_adapter": from_own, "mixed_from_backbone": from_backbone}


def rates(answer, seconds, batch):
    """Requests a second in each of five stretches of the time. Answers are on the host, so that what was measured is done."""
    for _ in range(3):
        answer()
    found = []
    for _ in range(5):
        batches, begun = 0, time.perf_counter()
        while not batches or time.perf_counter() - begun < seconds / 5:
            answer()
            batches += 1
        found.append(batches * batch / (time.perf_counter() - begun))
    return spread(found)


def last_logits(model, ids, **of):
    return model(input_ids=ids, logits_to_keep=1, **of).logits[:, -1]


def by_own_loop(model, ids, tokens, options, **of):
    """Greedy decoding over `past_key_values`: when it began and when each step's tokens were on the host."""
    instants = [time.perf_counter()]
    step, cached = ids.to(options.device), None
    for _ in range(tokens):
        out = model(input_ids=step, past_key_values=cached, use_cache=True, logits_to_keep=1, **of)
        step, cached = out.logits[:, -1].argmax(-1, keepdim=True), out.past_key_values
        step.cpu()
        instants.append(time.perf_counter())
    return instants


def by_generate(model, ids, tokens, options, **of):
    """The same by `generate`, which asks after each token whether it is to stop."""
    import torch
    from transformers import GenerationConfig, StoppingCriteriaList

    instants = [time.perf_counter()]

    def told(so_far, _scores, **_more):
        so_far[:, -1].cpu()
        instants.append(time.perf_counter())
        return torch.zeros(so_far.shape[0], dtype=torch.bool, device=so_far.device)

    # Random weights may choose any token: none ends a text.
    how = GenerationConfig(max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0, bos_token_id=1)
    prompts = ids.to(options.device)
    model.generate(
        input_ids=prompts,
        attention_mask=torch.ones_like(prompts),
        generation_config=how,
        stopping_criteria=StoppingCriteriaList([told]),
        **of,
    )
    if len(instants) != tokens + 1:
        raise RuntimeError(f"generate made {len(instants) - 1} tokens, not {tokens}")
    return instants


def generation(instants):
    """What the instants of one batch's tokens say: the prompts are taken in until the first."""
    steps = [1e3 * (end - start) for start, end in zip(instants[1:], instants[2:])]
    return {
        "seconds": instants[-1] - instants[0],
        "first_ms": 1e3 * (instants[1] - instants[0]),
        "ms_per_token": statistics.mean(steps),
        "steps_ms": steps,
    }


def about(options, model, targets, ours_per_layer):
    import torch

    layers, hidden = MODELS[options.model][:2]
    own = sum(weights.numel() for name, weights in model.named_parameters() if "lora_" in name and ".tenant-0." in name)
    return {
        "part": options.part,
        "date": now(),
        "device": options.device,
        "card": processor() if options.device == "cpu" else torch.cuda.get_device_name(options.device),
        "threads": torch.get_num_threads() if options.device == "cpu" else None,
        "versions": {name: importlib.metadata.version(name) for name in ["torch", "transformers", "peft"]},
        "model": options.model,
        "layers": layers,
        "hidden": hidden,
        "dtype": options.dtype,
        "attention": model.config._attn_implementation,
        "batch": options.batch,
        "tenants": options.batch,
        "input_tokens": options.length,
        "lora": {"targets": targets, "rank": options.rank, "parameters_per_layer": own // layers},
        "parameters_per_layer_in_tenantry": ours_per_layer,
    }


def processor():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "cpu")


# ---- Both sides ----

# What is compared: the part, its figure, what it is called, where Tenantry's is in a run of summary.json, and the aim.
ROWS = [
    ("adapters", "requests_per_s", "adapters: requests/s", lambda run: run["throughput_rps"], 3),
    # Each request's mean time for a token after its first, of as many requests as there are tenants, made together; the median of the requests.
    ("lora", "tokens_per_s_decoding", "LoRA: tokens/s, decoding", lambda run: run["workload"]["tenants"] * 1e3 / run["tpot_ms"]["p50"], 2),
    ("lora", "tokens_per_s_with_prompts", "LoRA: tokens/s, prompts included", lambda run: run["output_tokens_per_s"], None),
]

# A rehearsal's models, for both sides.
TINY = {"adapters": "tiny", "lora": "tiny-llama"}
# Of two parts the first leaves the other some time: its share of what there is.
FIRST = 0.4
# The scenarios' warm-up; what is measured comes after it.
WARM_UP = 1


class Failed(Exception):
    """Why there is no figure."""


class NoTime(Failed):
    """There may be one with more time."""

    def __init__(self):
        super().__init__("no time left")


def turns(options):
    """Runs both sides in turns. 1 where a comparison has fewer than two ratios, or than turns were asked, 4 where nothing but time was missing."""
    options.out.mkdir(parents=True, exist_ok=True)
    parts = list(PARTS) if options.of == "both" else [options.of]
    end = time.monotonic() + options.seconds
    whole = {
        "begun": now(),
        "tenantry": version(options.tenantry),
        "device": options.device,
        "turns": options.turns,
        "measured_s": options.measure,
        "parts": {part: {"theirs": None, "turns": []} for part in parts},
        "failures": [],
        "only_time_was_missing": True,
    }
    with tempfile.TemporaryDirectory() as scratch:
        try:
            if len(parts) > 1:
                # Else it would be in the first part's share.
                whole["cold_start_s"] = cold_start(options.seconds / 2)
            for part in parts:
                started, share = time.monotonic(), 1 if part == parts[-1] else FIRST
                of_part(part, whole, options, started + share * (end - started), Path(scratch))
        except KeyboardInterrupt:
            whole["failures"].append("interrupted: what was found until then is here")
    save(whole, options)
    print(table(whole))
    # One turn tells nothing of how much turns differ.
    enough = min(options.turns, 2)
    if all(one["ratio"] and len(one["ratio"]["all"]) >= enough for one in whole["rows"]):
        return 0
    return 4 if whole["only_time_was_missing"] else 1


def cold_start(limit):
    """The seconds to import their libraries, which a new machine must read from its disk first. What is wrong with them is told when they are used."""
    started = time.monotonic()
    imports = "import peft; from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification"
    try:
        subprocess.run([sys.executable, "-c", imports], capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        pass
    return time.monotonic() - started


def save(whole, options):
    whole["rows"] = [row(whole, *of) for of in ROWS if of[0] in whole["parts"]]
    write(options.out / "beside-peft.json", json.dumps(whole, indent=1) + "\n")


def version(program):
    """What the program calls itself. One that cannot is found to fail when it is to be measured."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    return said.stdout.strip() or f"tenantry, version unknown: exit code {said.returncode}"


def of_part(part, whole, options, until, scratch):
    """A side that fails is told of, and does not lose the other."""
    found, sides = whole["parts"][part], {"ours": Ours(part, options, until, scratch)}

    def failed(what, why):
        print(f"{part}, {what}: {why}", file=sys.stderr)
        whole["failures"].append(f"{part}, {what}: {str(why).splitlines()[-1]}")
        whole["only_time_was_missing"] &= isinstance(why, NoTime)

    # Its set-up is over before anything is measured.
    print(f"=== {part}, theirs, set-up", file=sys.stderr)
    with Theirs(part, options, until, scratch) as theirs:
        try:
            found["theirs"] = theirs.ready()
            sides["theirs"] = theirs
        except Failed as why:
            failed("theirs, set-up", why)
        took = dict.fromkeys(sides, 0)
        for turn in range(1, options.turns + 1):
            of_turn = {}
            found["turns"].append(of_turn)
            for name, side in sides.items():
                print(f"=== {part}, {name}, turn {turn}", file=sys.stderr)
                started = time.monotonic()
                try:
                    if until - started < took[name]:
                        raise NoTime
                    of_turn[name] = side.measured()
                except Failed as why:
                    failed(f"{name}, turn {turn}", why)
                took[name] = max(took[name], time.monotonic() - started)
            # A machine that is taken back leaves what was found.
            save(whole, options)


class Ours:
    """Runs of the part's scenario."""

    def __init__(self, part, options, until, scratch):
        self.until, self.folder, self.log = until, scratch / f"ours-{part}", scratch / f"ours-{part}.log"
        changes = [f"workload.warm_up={WARM_UP}s", f"workload.stop.after={WARM_UP + options.measure}s"]
        if options.device == "cpu":
            changes += [f"models.backbone={TINY[part]}", "systems[0].dtype=f32"]
        self.command = [options.tenantry, "execute", f"scenarios/h200/beside-peft-{part}.yaml", "--device", options.device]
        self.command += ["--quiet", "--out", self.folder, *(word for change in changes for word in ("--set", change))]

    def measured(self):
        """A run, from its summary."""
        with open(self.log, "w") as log:
            process = subprocess.Popen(self.command, stdout=log, stderr=log)
        try:
            code = process.wait(max(self.until - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            raise NoTime from None
        finally:
            if process.poll() is None:
                stop(process)
        if code:
            raise Failed(ended(code, self.log))
        run = json.loads((self.folder / "summary.json").read_text())["runs"][0]
        done, offered = run["requests"]["finished"], run["requests"]["offered"]
        if done != offered or not done:
            raise Failed(f"{done} of {offered} requests were answered")
        return run


class Theirs:
    """This file's own part, in a process that keeps its model from turn to turn: to make one takes longer than to measure it."""

    def __init__(self, part, options, until, scratch):
        self.until, self.log = until, scratch / f"theirs-{part}.log"
        command = [sys.executable, __file__, part, "--wait", "--device", options.device, "--measure", str(options.measure)]
        if options.device == "cpu":
            command += ["--model", TINY[part], "--dtype", "f32"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def ready(self):
        """The next line that it says."""
        readable, _, _ = select.select([self.process.stdout], [], [], max(self.until - time.monotonic(), 1))
        if not readable:
            stop(self.process)
            raise NoTime
        line = self.process.stdout.readline()
        if not line:
            raise Failed(ended(self.process.wait(), self.log))
        return json.loads(line)

    def measured(self):
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed("it has ended") from None
        return self.ready()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Ends it, which gives the card's memory back, also in the middle of something."""
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        stop(self.process)


def stop(process):
    process.send_signal(signal.SIGINT)
    try:
        # One side after the other takes less than the 15 seconds that on-gpu.sh leaves who is interrupted.
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def ended(code, log):
    """What a side said last."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join([f"exit code {code}:", *lines[-20:]])


def write(path, text):
    """Whole or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)


def row(whole, part, figure, what, of_run, aim):
    of = whole["parts"][part]["turns"]
    us = [of_run(turn["ours"]) for turn in of if "ours" in turn]
    them = [turn["theirs"][figure]["median"] for turn in of if "theirs" in turn]
    without = f"{figure}_without_adapters"
    alone = [turn["theirs"][without]["median"] for turn in of if without in turn.get("theirs", {})]
    ratios = [of_run(turn["ours"]) / turn["theirs"][figure]["median"] for turn in of if len(turn) == 2]
    return {
        "what": what,
        "aim": aim,
        "tenantry": spread(us),
        "transformers_peft": spread(them),
        "transformers_without_adapters": spread(alone),
        # Of the two sides of each turn.
        "ratio": spread(ratios),
    }


def table(whole):
    lines = [["", "Tenantry", "Transformers + PEFT", "Ratio", "Aim", "Transformers, no adapters"]]
    for one in whole["rows"]:
        figures = [shown(one[key]) for key in ["tenantry", "transformers_peft", "ratio"]]
        lines.append([one["what"], *figures, str(one["aim"] or "-"), shown(one["transformers_without_adapters"])])
    widths = [max(map(len, column)) for column in zip(*lines)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    text.append("The median of the turns; in brackets the lowest and the highest.")
    text.append(f"{whole['begun']}, {whole['device']}, {whole['tenantry']}")
    for part, of in whole["parts"].items():
        side = of["theirs"]
        if side is None:
            continue
        text.append(
            f"{part}: {side['model']}, {side['dtype']}, {side['batch']} requests of {side['input_tokens']} tokens over {side['tenants']} tenants"
            + (f", {side['generated_tokens']} new tokens by {side['decoded_by']}" if "decoded_by" in side else "")
        )
        text.append(
            f"  PEFT: LoRA of rank {side['lora']['rank']} on {', '.join(side['lora']['targets'])}: "
            f"{side['lora']['parameters_per_layer']:,} parameters a layer, Tenantry's {side['parameters_per_layer_in_tenantry']:,}"
        )
        versions = ", ".join(f"{name} {version}" for name, version in side["versions"].items())
        text.append(f"  {side['card']}; {versions}")
    return "\n".join(text + [f"FAILED: {failure}" for failure in whole["failures"]])


def shown(found):
    """Three digits of a median, and of what was lowest and highest."""
    if found is None:
        return "-"
    median, lowest, highest = (f"{float(f'{found[key]:.3g}'):,g}" for key in ["median", "lowest", "highest"])
    return f"{median} ({lowest} to {highest})"


# ---- Numbers ----


def spread(values):
    values = list(values)
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values), "all": values} if values else None


def part_of(ordered, share):
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main()
