//! Tests, checks and measurements of the workspace.
fn main() {}
