//! The question: YAML in, resolved and validated specifications out.
