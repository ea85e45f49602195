# In which layers and for which tokens have real models collapsed, with intervals, before and after the final norm?
collapselab measure texts/stories260K texts/SmolLM2-135M-Instruct.Q4_1.gguf --data texts/tinystories/train.txt \
    --tokens 100000 --layers all --classes --bootstrap 100 --outcomes loss_after_temperature \
    --out suites/results/real-100k-results/
collapselab collect suites/results/real-100k-results --out suites/results/real-100k
