//! The checkers, judged by histories and books made by hand. The lab itself is run by `cargo xtask crash`.

mod check;
mod events;
mod work;
