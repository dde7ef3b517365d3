//! Measurements of exactly, side by side with what it replaces.
