"""Write the numbers of a few measurements and of one training to a JSON file, or compare two such files.

    python tests/golden_numbers.py DATA OUT.json
    python tests/golden_numbers.py --compare BEFORE.json AFTER.json

For changes that must not move a number: run it before and after. DATA holds `stories260K`, a Llama model, and
`tinystories/validation.txt`. Numbers are compared to 1e-12 relative, everything else exactly, weights by their hash.
Attention heads have 16 numbers. A run takes 40 seconds of one core.
"""

import argparse
import hashlib
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from collapselab import Recipe, Settings, build_corpus, measure, open_source, train
from collapselab.measurement.measure import Corpus
from collapselab.models.build import build_config, build_model
from collapselab.records.measurement import Result

TOLERANCE = 1e-12
CONTEXT_OPTIONS: dict[str, Any] = {"contexts": (1, 2), "min_uses": 5, "classes": True, "deciders": True}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write golden numbers, or compare two files of them.")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("paths", nargs=2, type=Path)
    args = parser.parse_args()
    if args.compare:
        before, after = (json.loads(path.read_text()) for path in args.paths)
        differences = list(compare(before, after))
        print("\n".join(differences[:50]))
        print(f"{len(differences):,} differences")
        raise SystemExit(bool(differences))
    data, out = args.paths
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out.write_text(json.dumps(golden_numbers(data, Path(folder)), indent=1, default=str))


def golden_numbers(data: Path, folder: Path) -> dict[str, Any]:
    """Return the result tables of every measurement and the weights' hash of every checkpoint."""
    text = (data / "tinystories" / "validation.txt").read_text(encoding="utf-8")
    for split, part in {"train": text[:60_000], "validation": text[60_000:80_000]}.items():
        (folder / f"{split}.txt").write_text(part, encoding="utf-8")
    source = open_source([str(folder / "train.txt")], validation=[str(folder / "validation.txt")])
    llama = data / "stories260K"
    stories = build_corpus(source, folder / "llama", Recipe(tokenizer=str(llama), block=128))
    small = build_corpus(source, folder / "small", Recipe(tokenizer="bpe:300", block=64))
    neo = build_model(build_config("gpt-neo", width=32, depth=2, vocabulary=320, positions=64, head_size=16), seed=0)
    return {
        "llama": measured(
            str(llama), stories, tokens=8000, layers="all", train_loss=True, outcomes="all", push="default"
        ),
        "llama, bins and bootstrap": measured(
            str(llama), stories, tokens=8000, bins=3, bootstrap=10, **CONTEXT_OPTIONS
        ),
        "llama, float64": measured(str(llama), stories, tokens=5000, min_count=3, dtype="float64"),
        "gpt-neo": measured(neo.eval(), small, layers="all", bins=2, per_class=5, outcomes="all"),
        "gpt-neo, contexts": measured(neo.eval(), small, tokens=8000, push="-0.3,0.3", **CONTEXT_OPTIONS),
        "gemma 2": measured(gemma(), small, tokens=8000, layers="all", train_loss=True, bootstrap=5, push="default"),
        "training": trained(small.path, folder / "run"),
    }


def gemma() -> Gemma2ForCausalLM:
    """Return a random Gemma 2 with capped logits."""
    config = Gemma2Config(
        vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=64, final_logit_softcapping=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    return Gemma2ForCausalLM(config).eval()


def measured(model: Any, corpus: Corpus, **options: Any) -> dict[str, Any]:
    """Return the tables of one measurement, and its scores and outcomes."""
    result = measure(model, corpus, device="cpu", quiet=True, batch=8, **options)
    assert isinstance(result, Result)
    tables = {name: frame.to_dict(orient="records") for name, frame in result.frames.items()}
    assert tables["results"]
    return {"tables": tables, "splits": result.facts["splits"], "outcomes": result.facts.get("outcomes")}


def trained(corpus: Path, run: Path) -> dict[str, str]:
    """Return the weights' sha256 of the checkpoints of a training with two interventions."""
    settings = Settings(
        width=32, depth=2, head_size=16, batch=4, steps=60, lr=3e-3, dropout=0.1, intervene=("within:+0.1", "cdnv:-0.1"),
        checkpoints="log:3",
    )  # fmt: skip
    train(settings, corpus, run, device="cpu")
    files = sorted(run.glob("checkpoints/*/model.safetensors"))
    assert files
    return {file.parent.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def compare(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Yield a line for each value that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from compare(before.get(key), after.get(key), f"{place}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from compare(left, right, f"{place}/{number}")
    elif isinstance(before, float) and isinstance(after, float):
        if not math.isclose(before, after, rel_tol=TOLERANCE) and not (math.isnan(before) and math.isnan(after)):
            yield f"{place}: {before!r} became {after!r}"
    elif before != after:
        yield f"{place}: {before!r} became {after!r}"


if __name__ == "__main__":
    main()
