//! What each operation costs on a card: schema, interpolation, importers.
