//! Published test vectors. They are data of others and not part of the project, so a test that reads them passes without
//! them and says so.

use std::path::{Path, PathBuf};

/// The folder of one set of vectors, or its file, if it is there.
pub(crate) fn find(set: &str) -> Option<PathBuf> {
    let set = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/vectors")
        .join(set);
    if set.exists() {
        return Some(set);
    }
    println!("skipped: the published vectors {} are absent", set.display());
    None
}
