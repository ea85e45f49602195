from collapselab.cli import main

main()
