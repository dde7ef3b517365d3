//! Redis and Valkey store for exactly.
