"""What is known of a head or an optimiser, beside the function that makes it: `collapselab interventions` prints it."""

from typing import NamedTuple, final


@final
class About(NamedTuple):
    """Its formula and source, what it costs at every step, and what it is to move."""

    formula: str
    source: str
    cost: str = "–"
    """In numbers of multiplications beside those of a learned head or of adamw; K classes, D dimensions, N tokens."""
    must_move: str = "–"
    """Against a learned head that is not tied, or against adamw; – for a baseline."""
