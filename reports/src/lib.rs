//! Summaries, comparisons, plots and pages, from ledgers.
