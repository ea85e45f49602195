# In which layers and for which tokens have two real models collapsed? Version 0.1.0 made the table from the same options.
collapselab measure texts/stories260K texts/SmolLM2-135M-Instruct.Q4_1.gguf --data texts/tinystories/train.txt \
    --tokens 20000 --layers all --classes --out suites/results/real-results/
collapselab collect suites/results/real-results --out suites/results/real
