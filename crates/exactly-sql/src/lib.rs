//! SQLite and PostgreSQL stores for exactly: records that commit in the handler's own transaction.
