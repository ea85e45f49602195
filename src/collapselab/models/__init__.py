"""Causal language models: built, found, loaded, and taken apart into features and output layer.

    families.py       FAMILIES: configurations by name, width and depth; parameters and operations of a model
    build.py          `build_model`: a family, or any config.json resized → a model, its weights from a seed
    find.py           a name or pattern → run checkpoints, folders, GGUF files, models of the hub, and their files;
                      adapters.py: base+adapter
    weight_files.py   formats and sizes of weights on disk (safetensors, pickles, GGUF); rounded weights
    load.py           `load_model`: strictly, every weight in its place; `model_hash`, `find_device`
    function_model.py any function as a model.  fused_kernels.py: slow parts of models replaced by PyTorch's kernels
    taps.py           the features of every token and the output layer, of any model; whether these two give its logits
    scores.py         loss and accuracy of next tokens, without a matrix of tokens × vocabulary

A name goes through find and load, or a configuration through build, to a model; taps turns the model and blocks of
token ids into features; scores and the measurement compute from features and output layer.
"""
