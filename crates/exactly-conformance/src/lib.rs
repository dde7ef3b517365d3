//! The suites that every store of exactly passes.
