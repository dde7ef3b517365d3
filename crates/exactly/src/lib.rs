//! Exactly-once effects in an at-least-once world: idempotent calls, their stores and a tower layer.
