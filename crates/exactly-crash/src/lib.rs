//! The crash lab: real processes killed under load, checked against an independent ledger.
