//! Payments and refunds that happen once.
fn main() {}
