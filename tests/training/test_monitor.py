"""Alerts, the bound on the time that measuring takes, and the monitor in a plain loop."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from collapselab.corpus.blocks import Corpus
from collapselab.corpus.build import Recipe, build_corpus
from collapselab.corpus.sources import open_source
from collapselab.errors import ConfigError
from collapselab.measurement.measure import measure
from collapselab.training import monitor as monitors
from collapselab.training.callback import CollapseCallback
from collapselab.training.monitor import Alert, CollapseMonitor

TINYSTORIES = Path(__file__).parents[2].parent / "shared" / "data" / "tinystories"


def model(vocabulary: int = 300) -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_positions=32, n_embd=16, n_layer=2, n_head=2))


@pytest.fixture
def corpus(corpus_folder: Path) -> Corpus:
    return Corpus(corpus_folder)


def raised(text: str, values: list[float], steps: int = 100, metric: str = "participation") -> list[int]:
    """The steps at which a condition becomes true for these values, one every `steps`."""
    condition = monitors._Condition(metric, text)
    return [steps * n for n, value in enumerate(values) if condition.begins(value, steps * n)]


@pytest.mark.parametrize(
    ("text", "values", "steps"),
    [
        ("<0.1", [0.2, 0.05, 0.01, 0.2, 0.09], [100, 400]),
        (">1e-1", [0.2, 0.05, 0.2], [0, 200]),
        ("<0.1 after 200", [0.05, 0.05, 0.05], [200]),
        ("drop>50%", [8, 10, 5.1, 4.9, 4, 6, 4.9], [300, 600]),
        ("drop > 2", [8, 10, 8, 7.9], [300]),
        ("drop>50% after 200", [100, 50, 10, 6, 4], [400]),
        ("rise>50%", [4, 2, 2.9, 3.1], [300]),
        ("drop>50%", [-2, -2.9, -3.1], [200]),  # of a logarithm: of its absolute value
    ],
)
def test_a_condition_is_raised_when_it_becomes_true(text: str, values: list[float], steps: list[int]) -> None:
    assert raised(text, values) == steps


@pytest.mark.parametrize(
    ("alerts", "named"),
    [
        ({"agrement": "<0.1"}, "agrement is not a metric. Did you mean agreement?"),
        ({"layer1/nothing": "<0.1"}, "layer1/nothing is not a metric"),
        *(({"agreement": text}, repr(text)) for text in ["", "0.1", "=0.1", "<", "<10%", "drop<5%", "<0.1 before 5"]),
    ],
)
def test_a_bad_alert_is_refused_before_the_training(alerts: dict[str, str], named: str, corpus: Corpus) -> None:
    with pytest.raises(ConfigError) as refused:
        CollapseMonitor(corpus, alerts=alerts)
    assert str(refused.value).startswith("alerts: ")
    assert named in str(refused.value)


@pytest.mark.parametrize("settings", [{"on_alert": "shout"}, {"max_share": 0.0}, {"every": 0}])
def test_a_bad_setting_of_the_monitor_is_named(settings: dict[str, Any], corpus: Corpus) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        CollapseMonitor(corpus, **settings)


def test_a_layer_that_the_model_does_not_have_is_refused_at_the_first_measurement(corpus: Corpus) -> None:
    monitor = CollapseMonitor(corpus, tokens=300, alerts={"layer3/participation": "drop>50%"})
    with pytest.raises(ConfigError, match="there is no layer3. There are layer1, layer2"):
        monitor.step(model(), 0)


def test_a_plain_loop_gets_the_values_of_measure_and_trains_to_the_same_bits(corpus: Corpus) -> None:
    def trained(monitor: CollapseMonitor | None) -> tuple[list[Tensor], dict[int, dict[str, float]]]:
        one, logs = model().train(), {}
        optimizer = torch.optim.AdamW(one.parameters(), lr=1e-3)
        torch.manual_seed(1)
        for step in range(5):
            if monitor is not None and (values := monitor.step(one, step, last=step == 4)):
                logs[step] = values
            ids = torch.stack([corpus.train[4 * step + i] for i in range(4)]).long()
            one(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return [p.detach().clone() for p in one.parameters()], logs

    monitor = CollapseMonitor(corpus, every=3, tokens=300, max_share=math.inf)
    watched, logs = trained(monitor)
    assert all(torch.equal(a, b) for a, b in zip(trained(None)[0], watched, strict=True))
    assert list(logs) == [0, 3, 4]
    initial: Any = measure(model(), corpus, tokens=300, null=False, layers="all", quiet=True)
    of_first_block = next(
        r.value for r in initial.rows if (r.metric, r.layer, r.split) == ("participation", "1", "train")
    )
    assert logs[0]["collapse/within_share"] == initial.row("within_share").value
    assert logs[0]["collapse/layer1/participation"] == of_first_block
    assert logs[4]["collapse/seconds"] == monitor.seconds > 0
    assert logs[4]["collapse/share"] > 0


def test_measurements_are_left_out_while_they_would_take_too_much_time(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of training takes 1 s, a measurement 1 s: n of them, the next and the last need (n + 2) / 0.05 s."""
    clock = SimpleNamespace(now=0.0)

    def measured(*given: Any, **options: Any) -> Any:
        clock.now += 1
        return measure(*given, **options)

    monkeypatch.setattr(monitors, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(monitors, "measure", measured)
    one, monitor = model(), CollapseMonitor(corpus, every=5, tokens=300, layers="last", max_share=0.05)
    for step in range(101):
        values = monitor.step(one, step, last=step == 100)
        assert bool(values) == (step in (0, 60, 80, 100)), step
        clock.now += 1
    assert monitor.seconds == 4
    assert values["collapse/share"] == pytest.approx(0.04)


def test_alerts_warn_call_or_stop_a_training_on_real_stories(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if not TINYSTORIES.is_dir():
        pytest.skip("returns where ../shared/data has TinyStories")
    (tmp_path / "stories.txt").write_text((TINYSTORIES / "train.txt").read_text(encoding="utf-8")[:200_000])
    recipe = Recipe(tokenizer="bpe:512", block=32)
    corpus = build_corpus(open_source([str(tmp_path / "stories.txt")]), tmp_path / "corpus", recipe)
    data = [{"input_ids": corpus.train[i], "labels": corpus.train[i]} for i in range(400)]
    args = TrainingArguments(
        output_dir=str(tmp_path), max_steps=120, per_device_train_batch_size=8, use_cpu=True, learning_rate=1e-2,
        save_strategy="no", report_to="none", disable_tqdm=True, logging_steps=20,
    )  # fmt: skip

    def trained(**settings: Any) -> tuple[Trainer, CollapseCallback]:
        callback = CollapseCallback(corpus, every=20, tokens=2000, max_share=math.inf, **settings)
        trainer = Trainer(model=model(512), args=args, train_dataset=data, callbacks=[callback])
        trainer.train()
        return trainer, callback

    called: list[Alert] = []
    alerts = {"participation": "drop>20%", "val_loss": "<5.9 after 40", "layer1/participation": ">1000"}
    finished, watched = trained(alerts=alerts, on_alert=called.append)
    assert finished.state.global_step == 120
    assert called == watched.alerts
    assert not watched.stopped
    curve = {step: result.row("participation").value for step, result in watched.results.items()}
    highest = {step: max(curve[before] for before in curve if before <= step) for step in curve}
    expected = next(step for step in curve if curve[step] < 0.8 * highest[step])
    assert next((one.step, one.value) for one in called if one.metric == "participation") == (expected, curve[expected])
    losses = {step: result.facts["splits"]["validation"]["loss"] for step, result in watched.results.items()}
    below = next(step for step in losses if step >= 40 and losses[step] < 5.9)
    assert [one.step for one in called if one.metric == "val_loss"] == [below]
    assert {one.metric for one in called} == {"participation", "val_loss"}

    stopped, watched = trained(alerts={"participation": "drop>20%"}, on_alert="stop")
    assert stopped.state.global_step == expected < 120
    assert list(watched.results) == list(range(0, expected + 1, 20))
    assert [record.name for record in caplog.records if "participation" in record.getMessage()] == [monitors.__name__]
