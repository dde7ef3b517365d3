//! The checker, judged by histories made by hand. The lab itself is run by `cargo xtask crash`.

mod check;
