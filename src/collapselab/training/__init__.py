"""One model, trained from scratch on a corpus.

    settings.py        what decides the weights of a run, checked; `plan` turns it into steps on a corpus
    train.py           `train`: starts a run, continues it, or finds it finished
    trainer.py         the library's Trainer with our data and our loss; all randomness follows from (seed, step)
    loss.py            next-token cross-entropy that never holds tokens × vocabulary
    objective.py       the loss of a step: cross-entropy, and the gradients that interventions add
    interventions/     INTERVENTIONS: penalties by name, their doses, and the factor that holds a dose
    heads/             HEADS: how the output layer is replaced or frozen
    optimizers.py      OPTIMIZERS: how weights are updated
    checkpointing.py   what happens around the steps: restore, log, check, checkpoint, save, stop
    callback.py        `CollapseCallback`: the metrics while any Trainer of the library trains;  lightning.py: in
                       Lightning;  metric.py: a metric of torchmetrics
    generate.py        `sample`: a trained model writes

Blocks of token ids go from the corpus to the trainer; features and next tokens from the model to the objective; its
gradient back through the model to the optimiser; weights, log and state by checkpointing to the run's folder.
"""
