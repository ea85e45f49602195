"""Trackers: where trainings and measurements are followed. A tracker is one class here and one entry of `TRACKERS`.

A run has an identity that does not change when it is continued, so all that is logged of it is in one place: a training
that was stopped, its continuation, and the measurements of its checkpoints.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, final

from collapselab.errors import ConfigError, did_you_mean

PROJECT = "collapselab"
NONE = "none"
TAG = "collapselab.run"
MOST_TEXT_ROWS = 200
"""Rows of a table that a tracker which knows text alone is given."""

STEP = "train/global_step"
"""What trackers that count calls of their own draw curves over."""

Cell = str | float | int | None


@final
@dataclass(frozen=True)
class TrackedRun:
    """What a tracker calls a run: its name for people, its folder, and an identity of letters and digits."""

    name: str
    folder: Path

    @property
    def identity(self) -> str:
        """The same for the same folder, however often the run is continued."""
        return hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]

    @property
    def own_name(self) -> str:
        """A name that no other folder's run has, for a tracker that knows runs by their name alone."""
        return f"{self.name}-{self.identity[:6]}"


class Tracker(Protocol):
    """One run of a tracker, opened; `library` is the module that it needs."""

    library: str

    def __init__(self, run: TrackedRun) -> None: ...

    def settings(self, values: Mapping[str, Cell]) -> None:
        """What the run was made with, to sort and group runs by."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Numbers at a step, which the tracker draws as curves."""

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        """A table to read and sort."""

    def page(self, name: str, html: str) -> None:
        """A page that belongs to the run, kept with it as a file of this name."""

    def close(self) -> None:
        """Everything is written, and the next run can be opened."""


@final
class TensorBoard:
    """Event files in the folder `tensorboard` of the run, or in one of its own in TENSORBOARD_LOGGING_DIR."""

    library = "tensorboard"

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        chosen = os.environ.get("TENSORBOARD_LOGGING_DIR")
        folder = Path(chosen) / run.own_name if chosen else run.folder / "tensorboard"
        self.folder = folder
        self.writer: Any = SummaryWriter(log_dir=str(folder))

    def settings(self, values: Mapping[str, Cell]) -> None:
        self.table("settings", ("setting", "value"), list(values.items()), 0)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        lines = [columns, ["---"] * len(columns), *rows[:MOST_TEXT_ROWS]]
        self.writer.add_text(name, "\n".join(f"| {' | '.join(map(_cell_text, line))} |" for line in lines), step)

    def page(self, name: str, html: str) -> None:
        (self.folder / name).write_text(html, "utf-8")  # TensorBoard shows no HTML, and reads event files alone
        self.writer.add_text("page", f"`{name}`, beside the event files of this run")

    def close(self) -> None:
        self.writer.close()


@final
class Wandb:
    """Weights & Biases; with WANDB_MODE=offline in the run's folder `wandb`, to be synchronised later."""

    library = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        self.wandb = import_module("wandb")
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        run.folder.mkdir(parents=True, exist_ok=True)
        self.run: Any = self.wandb.init(
            project=project,
            id=run.identity,
            name=run.name,
            resume="allow",
            dir=str(run.folder),
            reinit="return_previous",
        )
        self.run.define_metric(STEP)
        self.run.define_metric("*", step_metric=STEP)

    def settings(self, values: Mapping[str, Cell]) -> None:
        self.run.config.update(dict(values), allow_val_change=True)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.run.log({**values, STEP: step})

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        data = [list(row) for row in rows]
        table = self.wandb.Table(columns=list(columns), data=data, allow_mixed_types=True)
        self.run.log({name: table, STEP: step})

    def page(self, name: str, html: str) -> None:
        path = Path(self.run.dir) / name  # what is saved from elsewhere is a link, and may be gone when it is uploaded
        path.write_text(html, "utf-8")
        self.run.save(str(path), base_path=self.run.dir, policy="now")

    def close(self) -> None:
        self.run.finish()


@final
class Trackio:
    """A local dashboard: `trackio show --project collapselab`."""

    library = "trackio"

    def __init__(self, run: TrackedRun) -> None:
        self.trackio, self.name = import_module("trackio"), run.own_name
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self.run: Any = self.trackio.init(project=project, name=self.name, resume="allow", embed=False)

    def settings(self, values: Mapping[str, Cell]) -> None:
        self.run.config.update(values)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.trackio.log(dict(values), step=step)

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        import pandas as pd

        frame = pd.DataFrame([list(row) for row in rows], columns=list(columns), dtype=object)
        self.trackio.log({name: self.trackio.Table(dataframe=frame)}, step=step)

    def page(self, name: str, html: str) -> None:
        with TemporaryDirectory() as folder:  # an artifact is a copy
            path = Path(folder) / name
            path.write_text(html, "utf-8")
            self.trackio.log_artifact(str(path), name=f"{self.name}-{path.stem}", type="page")

    def close(self) -> None:
        self.trackio.finish()


@final
class MLflow:
    """An MLflow server, or `mlflow.db` where MLFLOW_TRACKING_URI names none; the experiment is `collapselab`."""

    library = "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        self.mlflow = import_module("mlflow")
        self.mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        self.run_id = mlflow_run(self.mlflow, run)
        self.mlflow.start_run(run_id=self.run_id)

    def settings(self, values: Mapping[str, Cell]) -> None:
        self.mlflow.log_params(dict(values))

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        named = {_mlflow_name(name): value for name, value in values.items()}
        self.mlflow.log_metrics(named, step=step, synchronous=False)  # a training would wait for every line of its log

    def table(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], step: int) -> None:
        data = {column: [row[number] for row in rows] for number, column in enumerate(columns)}
        self.mlflow.log_table(data, artifact_file=f"{name}-{step}.json")

    def page(self, name: str, html: str) -> None:
        self.mlflow.log_text(html, artifact_file=name)

    def close(self) -> None:
        self.mlflow.flush_async_logging()
        self.mlflow.end_run()


def mlflow_run(mlflow: Any, run: TrackedRun) -> str:
    """The id of the run in MLflow, which gives ids itself: found by a tag, or made."""
    client = mlflow.MlflowClient()
    experiment = mlflow.get_experiment_by_name(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    matching = client.search_runs([experiment.experiment_id], f"tags.`{TAG}` = '{run.identity}'", max_results=1)
    if matching:
        return str(matching[0].info.run_id)
    made = client.create_run(experiment.experiment_id, run_name=run.name, tags={TAG: run.identity})
    return str(made.info.run_id)


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": MLflow,
}
"""The trackers by name, which is that of their extra too."""


def check_tracker(name: str) -> None:
    """ConfigError for a tracker that does not exist, or is not installed."""
    if name == NONE:
        return
    if name not in TRACKERS:
        hint = did_you_mean(name, TRACKERS)
        raise ConfigError(
            f"report_to: {name} is not a tracker. {hint} There are {', '.join(TRACKERS)}, or none.".replace("  ", " ")
        )
    if find_spec(TRACKERS[name].library) is None:
        raise ConfigError(f"report_to: {name} is not installed. Install it: pip install 'collapselab[{name}]'")


@contextmanager
def tracked(name: str, run: TrackedRun) -> Iterator[Tracker | None]:
    """The run in the tracker while the block runs; None where `name` is none."""
    check_tracker(name)
    if name == NONE:
        yield None
        return
    tracker = TRACKERS[name](run)
    try:
        yield tracker
    finally:
        tracker.close()


def _cell_text(cell: Cell) -> str:
    text = "–" if cell is None else f"{cell:.5g}" if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")


def _mlflow_name(name: str) -> str:
    """MLflow takes letters, digits and some signs in a name."""
    return "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)
