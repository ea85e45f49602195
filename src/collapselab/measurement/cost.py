"""What measuring costs: memory, operations, disk, network and time, each as a formula of sizes that are known before.

    cost = measuring(transformer(width=4096, depth=32, vocabulary=128256, …), Job(10**7, 10**6, Options(layers="all")))
    cost.memory.peak, cost.operations.pairs, cost.seconds(machine)

The formulas follow the code, term by term; matrix products are counted, elementwise work only where it is not small
beside them. The constants at the top are the ones that come from a clock or a memory gauge instead.
"""

from dataclasses import dataclass, field
from typing import Literal, final

from collapselab.core.accumulator import PART_BYTES
from collapselab.core.centre_loss import MIN_TOKENS, SCORES_BYTES
from collapselab.core.contexts import MAX_KERNEL
from collapselab.core.decisions import tokens_at_once
from collapselab.core.pairs import FEW_POINTS
from collapselab.measurement.find_contexts import PART_TOKEN_BYTES, PART_TOKENS
from collapselab.measurement.sample import GROUPS, HALVES, HELD_BYTES, RUN, curved_tokens, fitted_tokens
from collapselab.measurement.token_scores import OF_CLASSES
from collapselab.models.scores import rows_at_once
from collapselab.models.sizes import Architecture
from collapselab.records.options import Options

# Measured on a CPU.
OVERHEAD_BYTES = 36 << 20
"""Threads, libraries loaded on the way, and what the allocator keeps."""
FOLDED_NUMBERS = 30
"""Adding a number of a feature to a table takes as long as copying this many numbers of float64."""
PAIR_OPERATIONS, OUTPUT_PAIR_OPERATIONS = 450, 250
"""Work on a pair beside the product, as operations of float32 products that take as long; less for output rows."""
FEW_PAIR_OPERATIONS, FEW_OUTPUT_PAIR_OPERATIONS = 2300, 1500
"""The same where there are few points, whose pairs are computed in float64."""
EIGEN_OPERATIONS = 15
"""An eigendecomposition takes as long as products of this many operations times dim³."""

# Taken from the code: its defaults, and the tensors that are in memory at the same time.
CLASS_BYTES = 17
"""Bytes that ClassMoments have for a class beside its sum: a count, the squares, and a flag for their form."""
PART_BUFFERS = 2
"""Workspace: buffers for a part of a batch, the same for all tables."""
DECISION_TILE, PAIR_ROWS = 2048, 512
"""LinearClassifier: classes of a tile. Pairs: rows of a block, whose square is computed whole."""
LEVERAGE_OPERATIONS = 1
"""Solving with a triangle, for each class and dim²: the leverage of a class in a regression on the means."""
CATALOGUE_TABLES, CATALOGUE_SQUARES = 2, 10
"""Geometry at its largest: directions and projections, classes × dim, in float32, the latter also in float64; and
matrices of dim × dim."""
CENTRE_FITS, CENTRE_BUFFERS = 10, 4
"""CentreScores: steps of Newton's method, and copies of the scores of some tokens."""
CLASS_COLUMNS, ROW_SUMS = 10, 20
"""ClassRows: numbers of a class that are kept until the table is made. RowSums and PairRows: while pairs are swept."""
TOKEN_BYTES = 5
"""TokenScores: a confidence and whether it was right."""
DOUBLE = 8


@final
@dataclass(frozen=True)
class Job:
    """The sizes of a measurement that decide its cost: tokens of both splits, and how they are processed.

    `kept` and `kept_validation` are the classes that occur often enough in each split, at most all of them: only they
    have rows in tables.
    """

    train_tokens: int
    validation_tokens: int
    options: Options = field(default_factory=Options)
    block: int = 2048
    batch: int = 4
    processes: int = 1
    kept: int | None = None
    kept_validation: int | None = None
    kept_half: int | None = None
    """Classes of half the training tokens, whose values are computed in the pass; `kept` where it is not known."""
    number_bytes: int = 2
    """Of a weight or a feature: 2 in half precision, 4 in float32."""
    device: Literal["cpu", "cuda"] = "cpu"
    cells: tuple[int, ...] = ()
    """Rows of the tables of contexts, one for each length."""
    contexts: tuple[int, ...] = ()
    """Contexts of each length."""
    capped: bool = False
    """Whether the model's logits have a soft cap."""
    saved: bool = True
    """Whether sums are saved during the passes, as the command line does."""

    @property
    def batch_tokens(self) -> int:
        """Features of a batch that a process receives: with sharded classes those of all processes."""
        return self.batch * (self.block - 1) * (self.processes if self.options.shard_classes else 1)

    @property
    def shards(self) -> int:
        return self.processes if self.options.shard_classes else 1


@final
@dataclass(frozen=True)
class Memory:
    """Bytes of the process that holds most, the first: the model, and what each phase holds beside it."""

    model: float
    forward: float
    """Activations of a batch; part of both passes."""
    moments: float
    """Tables of classes, and the space to work in; part of every phase but resampling."""
    training: float
    catalogue: float
    validation: float
    resampling: float
    elsewhere: bool
    """Whether the catalogue is made in the host's memory though the model is on another device."""

    @property
    def peak(self) -> float:
        """On the device of the model."""
        return self.model + max(self.training, self.validation, 0 if self.elsewhere else self.catalogue)

    @property
    def host(self) -> float:
        """On the host, for work that is done there on any device; on a CPU both peaks are in the same memory."""
        return max(self.resampling, self.catalogue if self.elsewhere else 0)


@final
@dataclass(frozen=True)
class Operations:
    """Floating-point operations of all processes, by what they are for."""

    forward: float
    """Both passes through the blocks, in the model's precision."""
    output_layer: float
    """Loss and choices of the output layer, and its curvature, in float32."""
    nearest: float
    """The nearest centre at every layer, in float32."""
    covariance: float
    """The pooled covariance of the last layer, one product for all labellings; in float64."""
    second_moments: float
    """Of the layers below, in float32."""
    pairs: float
    """Of the catalogues of both splits, and of half the training split; in float32 but where classes are few."""
    squares: float
    """Gram matrices and spectra: what grows with dim² and dim³; in float64."""
    resampling: float

    @property
    def total(self) -> float:
        passes = self.forward + self.output_layer + self.nearest + self.covariance + self.second_moments
        return passes + self.pairs + self.squares + self.resampling


@final
@dataclass(frozen=True)
class Machine:
    """What one process computes and moves in a second."""

    flops: float
    """In the model's precision."""
    single: float
    double: float
    bandwidth: float
    network: float
    host_single: float
    host_double: float
    """On the host, where sharded classes and resamples are worked on."""


@final
@dataclass(frozen=True)
class Cost:
    """What a measurement takes."""

    job: Job
    memory: Memory
    operations: Operations
    folded: float
    """Bytes read and written as features are folded into tables."""
    state: float
    """Bytes on disk at most, to continue from after an interruption."""
    groups: float
    """Bytes on disk of what a bootstrap resamples."""
    received: float
    """Bytes over the network into the first process."""

    def seconds(self, machine: Machine) -> dict[str, float]:
        """By part. Passes are shared by all processes, the catalogue is made by the first."""
        done, processes = self.operations, self.job.processes
        device, host = (machine.single, machine.double), (machine.host_single, machine.host_double)
        single, double = host if self.memory.elsewhere else device
        products = done.covariance / machine.double + done.second_moments / machine.single
        return {
            "forward": done.forward / machine.flops / processes,
            "collecting": (self.folded / machine.bandwidth + products) / processes,
            "decisions": (done.output_layer + done.nearest) / machine.single / processes,
            "catalogue": done.pairs / single + done.squares / double,
            "resampling": done.resampling / machine.host_double,
            "network": self.received / machine.network,
        }


def measuring(architecture: Architecture, job: Job) -> Cost:
    """Everything that a measurement takes."""
    sizes = _Sizes(architecture, job)
    return Cost(
        job,
        sizes.memory(),
        sizes.operations(),
        folded=DOUBLE * FOLDED_NUMBERS * sizes.dim * sizes.added(),
        state=sizes.state(),
        groups=sizes.groups(),
        received=sizes.received(),
    )


def table_bytes(classes: float, dim: int, *, covariance: bool = False) -> float:
    """Bytes of one ClassMoments: the sum of each class, the numbers beside it; reference point, sum of directions."""
    return classes * (DOUBLE * dim + CLASS_BYTES) + DOUBLE * dim * (2 + dim * covariance)


def stored_bytes(seen: float, dim: int, *, covariance: bool = False) -> float:
    """Bytes of one ClassMoments on disk: only classes that were seen, each with its number."""
    return table_bytes(seen, dim, covariance=covariance) + DOUBLE * seen


def pair_flops(points: int, dim: int) -> float:
    """The products of all pairs' directions: half the square, and the squares on its diagonal whole."""
    return points * (points + min(PAIR_ROWS, points)) * (dim + 1)


class _Sizes:
    """The formulas, with the letters they are written in."""

    def __init__(self, architecture: Architecture, job: Job) -> None:
        self.architecture, self.job, self.options = architecture, job, job.options
        self.dim, self.classes = architecture.width, architecture.vocabulary
        self.kept = self.classes if job.kept is None else job.kept
        self.kept_validation = self.kept if job.kept_validation is None else job.kept_validation
        self.layers = architecture.depth + 1 if self.options.layers == "all" else 1
        self.labellings = 2 if self.options.null else 1
        self.tables = self.layers * self.labellings
        self.matrices = self.labellings + self.layers - 1  # covariances of the last layer, second moments of the others
        self.tokens = job.train_tokens + job.validation_tokens
        self.several = job.processes > 1
        self.fitted = min(job.train_tokens, fitted_tokens(max(self.kept, 1), self.dim))

    def memory(self) -> Memory:
        job, a = self.job, self.architecture
        forward = job.batch * job.block * (4 * a.width + 3 * a.feed_forward) * job.number_bytes
        train, validation = self.table_set(self.kept / job.shards), self.table_set(self.kept_validation / job.shards)
        moments = max(train, validation) + self.work()
        sets = 2 if self.options.bootstrap else 1  # the sums of all groups, beside those of the present group
        curvature = self.curvature()
        around = self.work() + OVERHEAD_BYTES + job.batch_tokens * self.dim * 2 * job.number_bytes
        deciding = self.classifiers() + self.tallies() + self.token_scores()
        rows = self.class_columns()
        running = max(forward, self.sweep(), curvature, self.by_centres()) + self.widened()
        return Memory(
            model=a.parameters * job.number_bytes,
            forward=forward,
            moments=moments,
            training=max(
                self.finding(), sets * (train + self.context_set()) + around + max(forward, curvature) + self.widened()
            ),
            catalogue=moments + max(self.combining(), self.context_catalogue()) + OVERHEAD_BYTES + rows,
            validation=sets * validation + around + deciding + rows + running,
            resampling=self.resampling() if self.options.bootstrap else 0,
            elsewhere=job.device != "cpu" and self.options.shard_classes,
        )

    def added(self) -> float:
        """Features that are added to tables, once for each: contexts are of the training split alone."""
        contexts = self.layers * len(self.job.cells)
        return self.tokens * self.tables + self.job.train_tokens * contexts

    def table_set(self, classes: float) -> float:
        """Bytes of all tables with this many classes, and of their matrices."""
        return self.tables * table_bytes(classes, self.dim) + DOUBLE * self.matrices * self.dim**2

    def context_set(self) -> float:
        """Bytes of the tables of contexts; they have no null of their own."""
        return self.layers * sum(table_bytes(rows, self.dim) for rows in self.job.cells)

    def finding(self) -> float:
        """Contexts as they are counted, before the model runs."""
        return min(PART_TOKENS, self.job.train_tokens) * PART_TOKEN_BYTES + OVERHEAD_BYTES if self.job.cells else 0

    def context_catalogue(self) -> float:
        """All tables of contexts, with means of contexts and of next tokens; with several processes one more."""
        if not self.job.cells:
            return 0
        largest, contexts = max(self.job.cells), max(self.job.contexts)
        means = DOUBLE * self.dim * (2 * contexts + min(self.kept, largest))
        merged = table_bytes(largest, self.dim) if self.several else 0
        return self.context_set() + means + merged + 4 * DOUBLE * min(contexts, MAX_KERNEL) ** 2

    def work(self) -> float:
        """Buffers for adding a part of a batch."""
        return PART_BUFFERS * min(PART_BYTES[self.job.device], DOUBLE * self.job.batch_tokens * self.dim)

    def geometry(self) -> float:
        """The catalogue of one table."""
        kept = max(self.kept, self.kept_validation)
        rows = 0 if kept == self.classes else kept * self.dim * self.job.number_bytes  # of the output layer
        return DOUBLE * (CATALOGUE_TABLES * kept * self.dim + CATALOGUE_SQUARES * self.dim**2) + rows

    def combining(self) -> float:
        """The catalogue of a table, beside what the first process holds of it to put it together."""
        table = table_bytes(max(self.kept, self.kept_validation), self.dim, covariance=True)
        if not self.several:
            return self.geometry()
        if self.options.shard_classes:
            return table + max(table / self.job.shards, self.geometry())
        return table + max(table, self.geometry())

    def classifiers(self) -> float:
        """Centres in float64 and float32; rows of the output layer as they are and in float32."""
        nearest = self.tables * (self.kept / self.job.shards) * self.dim * (DOUBLE + 4)
        return nearest + self.kept * self.dim * (self.job.number_bytes + 4)

    def tallies(self) -> float:
        """Four counts of each class and table, of this process and of all."""
        return 2 * 4 * DOUBLE * self.kept * self.tables

    def class_columns(self) -> float:
        """Of the table of classes: what is kept of every layer of both splits, and the sums of one sweep."""
        if not self.options.classes:
            return 0
        columns = CLASS_COLUMNS * self.layers * (self.kept + self.kept_validation)
        return DOUBLE * (columns + ROW_SUMS * max(self.kept, self.kept_validation))

    def token_scores(self) -> float:
        """Loss and count of each class, of this process and of all; confidences, which are also copied."""
        by_class = self.options.classes or any(map(self.options.asks, OF_CLASSES))
        tokens = self.job.validation_tokens * (1 + 1 / self.job.processes) if self.options.asks("ece") else 0
        return 2 * 2 * DOUBLE * self.classes * by_class + 2 * TOKEN_BYTES * tokens

    def sweep(self) -> float:
        """Logits; a classifier's scores, with features in float64."""
        job, tile = self.job, max(1, min(DECISION_TILE, self.kept))
        scores = 4 * tile * min(job.batch_tokens, tokens_at_once(tile, 4))
        choosing = job.batch_tokens * (2 * DOUBLE + 4) * self.dim + scores
        logits = 4 * self.classes * rows_at_once(job.batch * (job.block - 1), self.classes, job.device, 4)
        return choosing + logits

    def widened(self) -> float:
        """The output layer in float32, for its logits and their curvature; as it is, if it has that precision."""
        return 4 * self.classes * self.dim if self.job.number_bytes < 4 else 0

    def curvature(self) -> float:
        """Logits that become chances, for one run of tokens, with the slopes of a soft cap; the squares of all rows."""
        return 4 * self.classes * (RUN * (2 if self.job.capped else 1) + 1)

    def resampling(self) -> float:
        """Resamples side by side, a group as it is read and as tables, and a catalogue."""
        tables = self.table_set(max(self.kept, self.kept_validation))
        return max(HELD_BYTES, tables / self.labellings) + 2 * tables + self.geometry() + OVERHEAD_BYTES

    def operations(self) -> Operations:
        a, job, options = self.architecture, self.job, self.options
        fitted = 0 if options.shard_classes else self.fitted  # run once more
        run = (self.tokens + fitted) * job.block / (job.block - 1)  # the last of a block has no next token
        scored = job.validation_tokens + (job.train_tokens if options.train_loss else 0)
        samples = (job.train_tokens, job.validation_tokens)
        curved = sum(min(tokens, curved_tokens(self.classes, self.dim, sample=tokens)) for tokens in samples)
        choice = 2 * self.kept * (self.dim + 1)
        lens = job.validation_tokens * choice * (self.layers - 1) * options.deciders
        ranges = 2 if options.bins else 1  # at most once more: pairs within a bin
        pairs, squares = self.catalogues(self.labellings, ranges)
        again = sum(self.catalogues(1, ranges)) if options.bootstrap else 0
        half_pairs, half_squares = self.half_catalogue()
        return Operations(
            forward=run * a.forward_flops(job.block),
            output_layer=lens + (2 * scored + 4 * curved) * self.classes * self.dim,
            nearest=job.validation_tokens * choice * self.tables + self.fitted_by_centres() * choice,
            covariance=2 * self.tokens * self.dim**2,
            second_moments=2 * self.tokens * self.dim**2 * (self.layers - 1),
            pairs=pairs + half_pairs,
            squares=squares + half_squares,
            resampling=(options.bootstrap + 2 * HALVES) * again,
        )

    def fitted_by_centres(self) -> float:
        """Tokens that the centres of the last layer score so that their scale is fitted."""
        return 0 if self.options.shard_classes else CENTRE_FITS * self.fitted * self.labellings

    def by_centres(self) -> float:
        """Scores of some tokens by all centres, and their losses; features in float64."""
        scores = min(self.job.batch_tokens, max(MIN_TOKENS, SCORES_BYTES // (4 * max(self.kept, 1)))) * 4 * self.kept
        return CENTRE_BUFFERS * scores + self.job.batch_tokens * self.dim * (DOUBLE + 4)

    def catalogues(self, labellings: int, ranges: int) -> tuple[float, float]:
        """Pairs, and what grows with dim² and dim³: all tables of both splits, the output layer, bins."""
        tables, kept = self.layers * labellings, ranges * self.kept + self.kept_validation
        rows = _pairs(self.kept, self.dim, of_output=True)
        training = ranges * (tables * _pairs(self.kept, self.dim) + rows)
        validation = tables * _pairs(self.kept_validation, self.dim)
        # Where there is a covariance, a second product for a tile of pairs: the variance between two class means.
        along = labellings * (pair_flops(self.kept, self.dim + 1) + pair_flops(self.kept_validation, self.dim + 1))
        # Of means and output rows; where there is a covariance, twice more: it is read, and that of all tokens is made.
        grams = 2 * kept * self.dim**2 * (2 * tables + 2 * labellings) + 2 * ranges * self.kept * self.dim**2
        grams += 2 * labellings * (self.kept + self.kept_validation) * self.dim**2  # class means in its coordinates
        grams += 2 * self.classes * self.dim**2  # all rows of the output layer
        leverages = LEVERAGE_OPERATIONS * kept * self.dim**2 * tables
        # Of the means' Gram matrix; where there is a covariance, of it and of that of class means; of kept and of all
        # output rows; of the features of every layer, centred and not.
        matrices = tables * (ranges + 1) + 6 * labellings + ranges + 1 + 4 * self.layers
        spectra = EIGEN_OPERATIONS * self.dim**3 * matrices
        spectra += 2 * self.dim**3 * 2 * labellings  # the covariance of class means along the eigenvectors, both splits
        return training + validation + along, grams + leverages + spectra

    def half_catalogue(self) -> tuple[float, float]:
        """Of the last layer at half the training split; resamples and sharded classes have none."""
        kept = self.kept if self.job.kept_half is None else self.job.kept_half
        if self.options.bootstrap or self.options.shard_classes or not kept:
            return 0, 0
        squares = (10 + LEVERAGE_OPERATIONS) * kept * self.dim**2
        return _pairs(kept, self.dim) + pair_flops(kept, self.dim + 1), squares + 4 * EIGEN_OPERATIONS * self.dim**3

    def state(self) -> float:
        """Two savings and the finished file of the present pass, beside the finished file of the pass before."""
        if not self.job.saved or self.options.bootstrap:
            return 0
        tallies = 4 * DOUBLE * self.kept * self.tables * self.job.processes
        after = self.stored(self.kept, 1) + 3 * (self.stored(self.kept_validation, 1) + tallies)
        contexts = self.stored_contexts(self.job.processes)
        return max(after + contexts, 3 * (self.stored(self.kept, 1) + contexts)) if contexts else after

    def groups(self) -> float:
        """Of both splits; a class is seen in every group at most."""
        if not self.options.bootstrap:
            return 0
        tallies = 4 * DOUBLE * self.kept * self.tables * GROUPS
        stored = self.stored(self.kept, GROUPS) + self.stored(self.kept_validation, GROUPS)
        return stored + tallies + self.stored_contexts(max(GROUPS, self.job.processes))

    def stored_contexts(self, copies: int) -> float:
        return copies * self.layers * sum(stored_bytes(rows, self.dim) for rows in self.job.cells)

    def stored(self, seen: int, groups: int) -> float:
        """What all processes keep of a split: each its own groups of all classes, or a shard of them."""
        parts = max(groups, self.job.processes)
        copies = 1 if self.options.shard_classes else parts
        tables = self.tables * copies * stored_bytes(seen, self.dim)
        return tables + DOUBLE * self.matrices * parts * self.dim**2

    def received(self) -> float:
        """Tables of the others, once for each split; with sharded classes the features of the others as well."""
        job, others = self.job, self.job.processes - 1
        tallies = others * 4 * DOUBLE * self.kept * self.tables
        squares = DOUBLE * (self.matrices * self.dim**2 + self.tables * self.dim)  # and sums of directions
        row = self.tables * DOUBLE * (self.dim + 2)  # counts, sums and scatter
        rows = sum(-(-kept // job.shards) for kept in (self.kept, self.kept_validation))
        if not self.options.shard_classes:
            contexts = self.layers * sum(DOUBLE * (self.dim + 2) * rows for rows in job.cells)
            return others * (rows * row + contexts + 2 * squares) + tallies
        skips = self.options.layers == "all" and self.options.skip_positions > 0
        below = 1 - self.options.skip_positions / (job.block - 1) if skips else 1.0  # share of tokens, below the last
        layers = 1 + (self.layers - 1) * below
        labels = self.labellings * DOUBLE * (1 + below if skips else 1)
        features = layers * self.dim * job.number_bytes + labels
        choices = job.validation_tokens * 2 * DOUBLE * layers * self.labellings
        shared = self.tokens * features / job.processes
        return others * (shared + rows * row + choices + 2 * squares) + tallies


def _pairs(points: int, dim: int, *, of_output: bool = False) -> float:
    many = OUTPUT_PAIR_OPERATIONS if of_output else PAIR_OPERATIONS
    few = FEW_OUTPUT_PAIR_OPERATIONS if of_output else FEW_PAIR_OPERATIONS
    return pair_flops(points, dim) + (many if points > FEW_POINTS else few) * points**2 / 2
